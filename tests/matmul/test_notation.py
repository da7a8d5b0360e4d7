"""The notation of sharded arrays: what it means, and what is said of what it cannot mean."""

from __future__ import annotations

from typing import cast

import pytest

from ridgeline.errors import InputError
from ridgeline.job.matmul_question import MatmulArguments, MatmulQuestion, read_matmul
from ridgeline.job.notation import check_layout, find_notation, read_mesh, read_notation
from ridgeline.job.sharding import Product, Resharding, ShardedArray
from tests.messages import refusal

EXAMPLE = "write e.g. A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]"


def read(text: str, *mesh: str) -> object:
    return read_notation(text, mesh=mesh or None, where="NOTATION")


def test_an_array_has_dimensions_with_the_axes_that_split_them() -> None:
    array = read("A[I_XY,J]")

    assert array == ShardedArray(name="A", dims=("I", "J"), axes=(("X", "Y"), ()))
    assert str(array) == "A[I_XY,J]"


@pytest.mark.parametrize("text", ["A[I_XY, J]", "A[ I_{X,Y},J ]", "A[I_{XY},J]"])
def test_axes_may_be_written_in_braces_and_spaces_do_not_matter(text: str) -> None:
    assert read(text) == read("A[I_XY,J]")


def test_axes_with_long_names_stand_in_braces() -> None:
    array = read("W_in[D_{data,model},F]", "data", "model")

    assert isinstance(array, ShardedArray)
    assert (array.name, array.axes) == ("W_in", (("data", "model"), ()))
    assert str(array) == "W_in[D_{data,model},F]"


def test_a_subscript_that_is_the_name_of_an_axis_is_that_axis() -> None:
    array = read("A[I_data,J_xy]", "data", "x", "y")

    assert isinstance(array, ShardedArray)
    assert array.axes == (("data",), ("x", "y"))


@pytest.mark.parametrize("sign", ["@", "*", "·", "×", "x"])
def test_a_product_may_be_written_with_any_sign_of_multiplication(sign: str) -> None:
    assert read(f"A[I,J_X] {sign} B[J,K]") == read("A[I,J_X] @ B[J,K]")


def test_what_both_operands_share_is_summed_over_unless_the_output_keeps_it() -> None:
    summed, kept = read("A[B,I,J] @ W[B,J,K] -> C[B,I,K]"), read("A[I,J] @ B[I,J] -> C[I,J]")

    assert isinstance(summed, Product)
    assert isinstance(kept, Product)
    assert (summed.contracted, summed.batch, summed.outer) == (("J",), ("B",), (("I",), ("K",)))
    assert (kept.contracted, kept.batch) == ((), ("I", "J"))


def test_without_an_output_all_that_is_shared_is_summed_over() -> None:
    product = read("A[I_X,J] @ B[J,K]")

    assert isinstance(product, Product)
    assert (product.output.dims, product.output.is_free) == (("I", "K"), True)


def test_two_arrays_joined_by_an_arrow_are_a_change_of_layout() -> None:
    assert isinstance(read("A[I_XY,J] → A[I_Y,J]"), Resharding)


def test_a_sum_over_everything_is_a_number() -> None:
    product = read("A[I_X] @ B[I_X] -> C[]")

    assert isinstance(product, Product)
    assert product.output.dims == ()


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "malformed notation: it ends too early"),
        ("A", 2, "malformed notation: it ends too early"),
        ("A[I,J", 6, "malformed notation: it ends too early"),
        ("A[I,,J]", 5, "malformed notation: `,` is out of place"),
        ("A[I J]", 5, "malformed notation: `J` is out of place"),
        ("A[I_]", 5, "malformed notation: `]` is out of place"),
        ("A[I_{X]", 7, "malformed notation: `]` is out of place"),
        ("A[I_2]", 5, "malformed notation: `2` is out of place"),
        ("[I,J]", 1, "malformed notation: `[` is out of place"),
        ("A[I,J] @", 9, "malformed notation: it ends too early"),
        ("A[I,J] B[J,K]", 8, "malformed notation: `B` is out of place"),
        ("A[I,J] @ B[J,K] C[I,K]", 17, "malformed notation: `C` is out of place"),
        ("A[I,J] @ B[J,K] -> C[I,K] @ D[K]", 27, "malformed notation: `@` is out of place"),
        ("A[I,J]{X}", 8, "malformed notation: `X` is out of place"),
        ("A[I,J]{U}", 9, "malformed notation: `}` is out of place"),
        ("A[I,J]{U_X", 11, "malformed notation: it ends too early"),
        ("A[I_X,J_X]", 9, "mesh axis X is used twice in A"),
        ("C[I_X,K]{U_X}", 12, "mesh axis X is used twice in C"),
        ("A[I,I]", 5, "A names dimension I twice"),
        ("A[I,J] @ A[J,K]", 10, "both operands are called A"),
        ("A[I] @ B[J]", 8, "A and B share no dimension"),
        ("A[I,J]{U_X} @ B[J,K]", 1, "operand A is a partial sum over X"),
        ("A[I,J] @ B[J,K] -> C[I,L]", 20, "C has a dimension L that no operand has"),
        ("A[I,J] @ B[J,K] -> C[I]", 20, "dimension K is in B alone and not in C"),
        ("A[I,J_X] @ B[J_X,K_Y] -> C[I,K]{U_Y}", 26, "C cannot be a partial sum over Y"),
        ("A[I_X,J] -> A[J,I_X]", 13, "another layout keeps the dimensions"),
        ("A[I,J] -> A[I,J]{U_X}", 11, "A cannot be a partial sum over X"),
        ("A[I_X,J] @ B[J,K_X] -> C[I_X,K_X]", 32, "mesh axis X is used twice in C"),
    ],
)
def test_what_cannot_be_meant_is_pointed_at_by_its_column(text: str, column: int, what: str) -> None:
    with pytest.raises(InputError) as refused:
        read(text)

    error = refused.value
    assert (error.what, error.where) == (what, f"NOTATION, column {column}")
    assert error.value == f"{text[: column - 1]}»{text[column - 1 :]}"
    assert error.expected
    assert error.fix


def test_a_refusal_says_what_could_have_stood_there() -> None:
    with pytest.raises(InputError) as refused:
        read("A[B,D] @ W[D_,F]")

    assert str(refused.value) == refusal(
        "malformed notation: `,` is out of place",
        where="NOTATION, column 14",
        value="A[B,D] @ W[D_»,F]",
        expected="a mesh axis",
        fix=EXAMPLE,
    )


@pytest.mark.parametrize(
    ("text", "column", "what", "fix"),
    [
        ("A[I_Z,J]", 5, "unknown mesh axis Z", "add Z to the mesh"),
        ("A[I_XZ,J]", 5, "unknown mesh axis Z", "add Z to the mesh"),
        ("A[I_x,J]", 5, "unknown mesh axis x", "did you mean X?"),
        ("A[I,J_modle]", 7, "unknown mesh axis modle", "did you mean model?"),
    ],
)
def test_an_axis_that_the_mesh_does_not_have_is_refused(text: str, column: int, what: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        read(text, "X", "Y", "model")

    assert (refused.value.what, refused.value.where) == (what, f"NOTATION, column {column}")
    assert (refused.value.expected, refused.value.fix) == ("an axis of the mesh: X, Y, model", fix)


def question(text: str, **arguments: object) -> MatmulQuestion:
    return read_matmul(text, cast("MatmulArguments", arguments), written=lambda name: f"--{name}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sizes": "B=8,D=8"},
            refusal(
                "size missing",
                where="--sizes",
                value="B=8, D=8",
                expected="a size for each of B, D, F",
                fix="add F=…",
            ),
        ),
        (
            {"sizes": "B=8,D=8,F=8,G=8"},
            refusal(
                "no array has a dimension G",
                where="--sizes",
                value="G",
                expected="sizes of B, D, F",
                fix="leave G out",
            ),
        ),
        (
            {"sizes": "B=8,D=8,F=1000", "mesh": "X=4,Y=16"},
            refusal(
                "dimension F of W does not divide over Y",
                where="--sizes: F",
                value="F=1000 over Y=16",
                expected="a multiple of 16",
                fix="pad F to 1,008 (0.8% more), or split it less",
            ),
        ),
        (
            {"sizes": "B=8,D=8,F=8", "mesh": "X"},
            refusal(
                "item 1 is malformed: 'X'",
                where="--mesh",
                value="X",
                expected="name=value pairs joined by commas",
                fix="write e.g. X=4,Y=8",
            ),
        ),
        (
            {"mesh": {"2": 4}},
            refusal(
                "not a name for a mesh axis",
                where="--mesh",
                value="2",
                expected="a letter, then letters and digits",
                fix="write e.g. X=4,Y=8 or data=4,model=8",
            ),
        ),
        (
            {"dtype": "Q=int8"},
            refusal(
                "there is no array Q",
                where="--dtype",
                value="Q",
                expected="names among A, W, C",
                fix="leave Q out",
            ),
        ),
        (
            {"link_bandwidth": "90GB/s", "axis_bandwidth": "180GB/s"},
            refusal(
                "the rate of a link is said twice",
                where="--link_bandwidth",
                value="90GB/s",
                expected="one of --link_bandwidth and --axis_bandwidth, twice as much",
                fix="leave --link_bandwidth out",
            ),
        ),
        (
            {"mesh": "X=1,Y=1,Z=1,V=1,W=1"},
            refusal(
                "too many mesh axes",
                where="--mesh",
                value="X, Y, Z, V, W",
                expected="at most 4",
                fix="join axes that are used alike into one",
            ),
        ),
        (
            {"peak": 0},
            refusal(
                "a rate of zero",
                where="--peak",
                value="0",
                expected="a rate above zero",
                fix="leave it out, or state it",
            ),
        ),
    ],
)
def test_what_is_said_beside_the_notation_must_fit_it(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        question("A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]", **arguments)

    assert str(refused.value) == message


def test_a_slice_alone_is_a_mesh_of_its_own_axes() -> None:
    asked = question("A[I_X,J_Y]", on="v5e:4x8", sizes="I=32,J=32")

    assert asked.mesh == {"X": 4, "Y": 8}


def test_a_product_in_which_nothing_is_split_asks_for_layouts_once_there_is_a_mesh() -> None:
    assert not question("A[I,J] @ B[J,K]").searches
    assert question("A[I,J] @ B[J,K]", mesh="X=4").searches
    assert question("A[I_X,J] @ B?[J,K]", mesh="X=4").searches
    assert not question("A[I_X,J] @ B[J,K]", mesh="X=4").searches


def test_dtypes_may_differ_by_array_and_the_widest_operand_is_multiplied_in() -> None:
    asked = question("A[B,D] @ W[D_X,F]", dtype="W=int8,A=bf16")

    assert asked.dtypes == {"A": "bf16", "W": "int8", "C": "bf16"}
    assert asked.compute_dtype == "bf16"


@pytest.mark.parametrize(
    ("sentence", "notation"),
    [
        ("v5e 4x4 (no wraparound): A[I_X,J] x B[J_X,K_Y].", "A[I_X,J] x B[J_X,K_Y]"),
        ("Partial ungather: A[I_XY,J] -> A[I_Y,J].", "A[I_XY,J] -> A[I_Y,J]"),
        ("Shards of [I_XY, J] on a 4x8 mesh.", "A[I_XY, J]"),
        ("A[I_X,J] x B[J,K_X]: both outer dims on one mesh axis.", "A[I_X,J] x B[J,K_X]"),
        ("A[I_X, J, K, ...] on a mesh", "A[I_X, J, K]"),
        ("C[I,K] { U_X } is reduced", "C[I,K] { U_X }"),
        ("int8[128,2048] on four chips", None),
        ("no notation at all", None),
    ],
)
def test_a_notation_is_found_in_running_text(sentence: str, notation: str | None) -> None:
    assert find_notation(sentence) == notation


def test_a_layout_is_legal_or_says_why_not() -> None:
    assert check_layout("A[I_X,J_Y]").is_legal
    assert check_layout("A[I_X,J_X]").reason == "mesh axis X is used twice in A"
    assert check_layout("A[I_X,J_Z]", mesh="X=2,Y=2").reason == "unknown mesh axis Z"


def test_a_mesh_may_be_a_text_or_a_mapping() -> None:
    assert read_mesh("X=4, Y=8", where="mesh") == read_mesh({"X": 4, "Y": 8}, where="mesh") == {"X": 4, "Y": 8}
