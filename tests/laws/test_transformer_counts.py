"""Models by their letters, counted through the same tree as every model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline
from ridgeline.errors import InputError
from ridgeline.model.accounting import account
from ridgeline.model.letters import model_from_letters, parse_letters
from ridgeline.model.roles import matrix_parameters, role_accounts
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model, model_names

LLAMA3_70B = {"L": 80, "D": 8192, "F": 28672, "N": 64, "K": 8, "H": 128, "V": 128256}
small = st.integers(1, 64)
letters = st.fixed_dictionaries({"L": small, "D": small, "F": small, "N": small, "K": small, "H": small, "V": small})


@given(letters, st.booleans())
def test_letters_give_the_parameters_of_the_book_s_formula(sizes: dict[str, int], gated: bool) -> None:  # noqa: FBT001 - drawn by the test runner
    count = ridgeline.transformer({**sizes, "gated": int(gated)}, seq_len=8)

    L, D, F, N, K, H, V = (sizes[letter] for letter in "LDFNKHV")
    matrices = 3 if gated else 2
    assert count.roles["mlp"].parameters == L * matrices * D * F
    assert count.roles["attention"].parameters == L * 2 * D * (N + K) * H
    assert count.parameters == L * (matrices * D * F + 2 * D * (N + K) * H) + 2 * D * V


@given(letters, st.integers(2, 64), st.integers(1, 16), small, small)
def test_letters_give_the_flops_of_the_book_s_table(sizes: dict[str, int], E: int, k: int, B: int, T: int) -> None:
    count = ridgeline.transformer({**sizes, "E": E, "k": k}, seq_len=T, num_sequences=B)

    L, D, F, N, K, H, V = (sizes[letter] for letter in "LDFNKHV")
    assert count.roles["mlp"].training_flops == 18 * k * B * T * D * F * L
    assert count.roles["attention"].training_flops == 12 * B * T * D * (N + K) * H * L
    assert count.roles["scores"].training_flops == 12 * B * T * T * N * H * L
    assert count.roles["unembedding"].training_flops == 6 * B * T * D * V


@given(letters)
def test_the_formula_read_off_the_weights_gives_their_count(sizes: dict[str, int]) -> None:
    count = ridgeline.transformer(sizes, seq_len=8)

    for each in count.derivations:
        if each.quantity.startswith("parameters"):
            python = each.formula.replace("·", "*")
            assert eval(python, {}, dict(each.values)) == each.value  # noqa: S307 - our own formula


@pytest.mark.parametrize("name", model_names())
def test_roles_share_out_the_whole_model(name: str) -> None:
    spec = load_model(name)
    tree = model_tree(spec)

    accounts = role_accounts(tree, seq_len=8192)

    whole = account(tree, embed_dim=spec.embed_dim, seq_len=8192)
    assert sum(each.parameters for each in accounts.values()) == whole.parameters
    assert sum(each.active_parameters for each in accounts.values()) == whole.active_parameters
    assert sum(each.flops_per_token for each in accounts.values()) == pytest.approx(whole.flops_per_token_forward)


@pytest.mark.parametrize("name", ["llama3.1-70b", "deepseek3-671b", "gemma3-27b", "gpt-oss-20b"])
@pytest.mark.parametrize("masked", [True, False])
def test_scores_take_as_many_flops_as_the_matmuls_at_the_crossover(name: str, masked: bool) -> None:  # noqa: FBT001 - drawn by the test runner
    there = round(ridgeline.transformer(name, masked=masked).crossover_tokens)

    at = ridgeline.transformer(name, seq_len=there, masked=masked)

    assert at.scores_ratio == pytest.approx(1, rel=1e-3)


def test_the_crossovers_of_chapter_4_are_8d_and_2d() -> None:
    count = ridgeline.transformer({"D": 4608})

    assert (count.crossover_tokens, count.projections_crossover_tokens) == (8 * 4608, 2 * 4608)


def test_a_mask_doubles_the_crossover() -> None:
    whole, masked = (ridgeline.transformer(LLAMA3_70B, masked=switch).crossover_tokens for switch in (False, True))

    assert masked == 2 * whole


def test_full_remat_repeats_all_but_the_last_matmul_of_a_layer() -> None:
    count = ridgeline.transformer(LLAMA3_70B, seq_len=64)

    layers = count.roles["attention"].forward_flops + count.roles["scores"].forward_flops
    layers += count.roles["mlp"].forward_flops * 2 / 3
    assert count.remat["full"].recomputed_flops == layers


def test_keeping_the_projections_leaves_only_the_scores_to_repeat() -> None:
    count = ridgeline.transformer(LLAMA3_70B, seq_len=4096)

    assert count.remat["minimal"].recomputed_flops == count.roles["scores"].forward_flops
    assert count.remat["minimal_with_context"].recomputed_flops == 0


def test_a_zoo_model_and_its_letters_have_the_same_matrices() -> None:
    spec, own = load_model("llama3.1-70b"), model_from_letters(LLAMA3_70B, where="")

    both = [matrix_parameters(role_accounts(model_tree(each), seq_len=1)) for each in (spec, own)]

    assert both[0] == both[1] == 70_552_387_584


def test_letters_left_out_take_their_usual_proportion_and_say_so() -> None:
    spec = model_from_letters({"D": 4096}, where="")

    assert spec.notes == ("Not given, and taken as usual: L = 1, F = 16,384, N = 32, K = 32, H = 128, V = 0.",)


def test_heads_times_their_width_may_be_given_together() -> None:
    assert ridgeline.transformer({"D": 64, "NH": 256}).roles["attention"].parameters == 4 * 64 * 256


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("L=2,G=3", "unknown letter of a model", "MODEL, column 5"),
        ("L=2,D=64,L=3", "a letter is given twice", "MODEL, column 10"),
        ("D=64,tied,untied", "a letter is given twice", "MODEL, column 11"),
        ("L=2,D=x", "not a number", "MODEL, column 5"),
        ("L=2,D=0", "number too small", "MODEL, column 5"),
    ],
)
def test_a_malformed_letter_is_pointed_at(text: str, what: str, where: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_letters(text, where="MODEL")

    assert (refused.value.what, refused.value.where) == (what, where)


def test_letters_without_a_width_are_refused() -> None:
    with pytest.raises(InputError, match="no width is given"):
        model_from_letters({"L": 2}, where="MODEL")
