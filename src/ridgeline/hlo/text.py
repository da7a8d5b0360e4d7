"""From HLO text to a module: the one place where that text is read.

The text is read line by line: a line opens or closes a computation, or is an instruction, which goes on over more lines
while its brackets are open (the metadata of Pallas kernels does). Attributes that nobody knows are kept; a text that is
cut short, or is no HLO, is refused with the line where that shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.hlo.module import MAIN_THREAD, Computation, HloModule, Instruction
from ridgeline.hlo.shape import TupleShape, parse_shape, shape_end
from ridgeline.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LARGEST_FILE_BYTES = 2**28
"""An absurdly large text: that of 405B parameters on 512 chips is a few megabytes."""

_EXPECTED = "HLO text, as jax's compiled.as_text() and XLA's dumps write it"
_HOW_TO_WRITE = (
    "write it with compiled.as_text(), or dump it with --xla_dump_to=DIR --xla_dump_hlo_as_text and take the "
    "*after_codegen.txt or *after_optimizations.txt"
)

_OPENING = re.compile(r"(ENTRY\s+)?%?([^\s({]+)\s.*\{\s*")
_INSTRUCTION = re.compile(r"\s*(ROOT\s+)?%?([^\s=]+)\s+=\s+")
_OPCODE = re.compile(r"\s*([a-z][\w-]*)\(")
_ATTRIBUTE = re.compile(r"\s*([\w-]+)=")
_END = re.compile(r'\}\s*(?:,\s*execution_thread="([^"]*)")?\s*')
_OPERAND = re.compile(r"%([^\s,(){}]+)")
_BARE_OPERAND = re.compile(r"([^\s,{}()\[\]]+)\s*\Z")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[()\[\]{},]')
_CALLING = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "called_computations",
    "branch_computations",
    "true_computation",
    "false_computation",
)
_WITHOUT_OPERANDS = {"parameter", "constant", "iota", "replica-id", "partition-id"}


def read_hlo(path: str, *, where: str) -> HloModule:
    """The module in a file.

    Args:
        path: Of the file.
        where: The flag or argument that named it, for messages.

    Raises:
        InputError: It cannot be read, is larger than `LARGEST_FILE_BYTES`, or is not whole HLO text.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise _refused("a folder, not a file", where, path, "name one file in it")
        size_bytes = file.stat().st_size
        if size_bytes > LARGEST_FILE_BYTES:
            limit = f"at most {format_bytes(LARGEST_FILE_BYTES)} of HLO text"
            raise InputError(
                f"file too large: {format_bytes(size_bytes)}",
                where=where,
                value=path,
                expected=limit,
                fix=_HOW_TO_WRITE,
            )
        with file.open(encoding="utf-8") as lines:
            return parse_hlo(lines, where=path)
    except UnicodeDecodeError as error:
        raise _refused("not text: a binary file", where, path, _HOW_TO_WRITE) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(f"cannot read the file: {reason}", where, path, "check the path") from error


def parse_hlo(lines: Iterable[str], *, where: str) -> HloModule:
    """The module that the lines of a text state.

    >>> text = '''HloModule tiny
    ... ENTRY %main (x: f32[2,3]) -> f32[2,3] {
    ...   %x = f32[2,3]{1,0} parameter(0)
    ...   ROOT %y = f32[2,3]{1,0} add(%x, %x), metadata={op_name="jit(f)/add"}
    ... }'''
    >>> module = parse_hlo(text.splitlines(), where="tiny.hlo")
    >>> root = module.entry_computation.instructions["y"]
    >>> root.opcode, root.operands, root.op_name
    ('add', ('x', 'x'), 'jit(f)/add')
    """
    numbered = enumerate(lines, 1)
    name, attributes = _header(numbered, where)
    computations: dict[str, Computation] = {}
    entry, last = "", 1
    for number, line in numbered:
        last = number
        opening = _OPENING.fullmatch(line) if line.rstrip().endswith("{") else None
        if opening is not None:
            computation = _computation(opening[2], numbered, begins=number, where=where)
            computations[computation.name] = computation
            entry = computation.name if opening[1] else entry
        elif line.startswith("HloModule "):
            raise _refused("two modules in one text", f"{where}: line {number}", line, "give each its own file")
    module = HloModule(name=name, attributes=attributes, computations=computations, entry=entry, where=where)
    _check_whole(module, last_line=last)
    return module


def _header(numbered: Iterator[tuple[int, str]], where: str) -> tuple[str, Mapping[str, str]]:
    for number, line in numbered:
        if not line.strip():
            continue
        if "\0" in line:
            raise _refused("not text: a binary file", where, where, _HOW_TO_WRITE)
        if not line.startswith("HloModule "):
            raise _refused("not HLO: it must begin with HloModule", f"{where}: line {number}", line, _HOW_TO_WRITE)
        name, comma, rest = line.removeprefix("HloModule ").strip().partition(",")
        try:
            return name, dict(_attributes(comma + rest, 0))
        except ValueError as error:
            raise _malformed(str(error), where, number, line) from error
    raise _refused("nothing in it", where, where, _HOW_TO_WRITE)


def _computation(name: str, numbered: Iterator[tuple[int, str]], *, begins: int, where: str) -> Computation:
    """The instructions up to the closing brace."""
    instructions: dict[str, Instruction] = {}
    root, last = "", begins
    for number, text in _statements(numbered):
        last = number
        if ends := _END.fullmatch(text):
            if not instructions:
                raise _malformed("a computation without instructions", where, number, text)
            return Computation(
                name=name,
                instructions=instructions,
                root=root or next(reversed(instructions)),
                thread=ends[1] or MAIN_THREAD,
                line=begins,
            )
        try:
            instruction, is_root = _instruction(text, number)
            instructions |= {element.name: element for element in _elements(instruction, instructions)}
        except ValueError as error:
            raise _malformed(str(error), where, number, text) from error
        except RecursionError as error:
            raise _malformed("brackets nested too deeply", where, number, text) from error
        instructions[instruction.name] = instruction
        root = instruction.name if is_root else root
    raise _malformed(f"the text ends inside computation {name}", where, last, name)


def _elements(user: Instruction, instructions: Mapping[str, Instruction]) -> Iterator[Instruction]:
    """`%tuple#1` among operands is element 1 of a tuple: a get-tuple-element that newer texts do not write out."""
    for operand in user.operands:
        name, _, index = operand.rpartition("#")
        whole = instructions.get(name)
        if whole is not None and isinstance(whole.shape, TupleShape) and index.isdecimal():
            elements = whole.shape.elements
            if int(index) >= len(elements):
                raise ValueError(f"{name} has {len(elements)} elements")
            yield Instruction(
                name=operand,
                shape=elements[int(index)],
                opcode="get-tuple-element",
                operands=(name,),
                attributes={"index": index},
                line=user.line,
            )


def _statements(numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Instructions and closing braces, each with its line; brackets left open carry an instruction on to more lines."""
    begins, lines, depth = 0, list[str](), 0
    for number, line in numbered:
        if lines and (_INSTRUCTION.match(line) or _END.fullmatch(line)):  # cut short: what came is no instruction
            yield begins, "".join(lines)
            lines, depth = [], 0
        if not lines:
            begins = number
        lines.append(line)
        depth += _depth(line)
        if depth <= 0 or _END.fullmatch(line):
            text, lines, depth = "".join(lines), [], 0
            if text.strip():
                yield begins, text
    if lines:
        yield begins, "".join(lines)


def _depth(line: str) -> int:
    """Brackets that a line opens and does not close; those in strings do not count."""
    if all(line.count(opening) == line.count(closing) for opening, closing in ("{}", "()", "[]")):
        return 0  # nearly every line; counting is quicker than reading
    found = _TOKEN.findall(line)
    return sum(each in "([{" for each in found) - sum(each in ")]}" for each in found)


def _instruction(line: str, number: int) -> tuple[Instruction, bool]:
    """One line: `ROOT %name = shape opcode(operands), key=value, …`."""
    start = _INSTRUCTION.match(line)
    if start is None:
        raise ValueError("not an instruction")
    end = shape_end(line, start.end())
    opcode = _OPCODE.match(line, end)
    if opcode is None:
        raise ValueError("no operation after the shape")
    closing = _closing(line, opcode.end() - 1)
    inside = line[opcode.end() : closing - 1]
    reads = opcode[1] not in _WITHOUT_OPERANDS
    instruction = Instruction(
        name=start[2],
        shape=parse_shape(line[start.end() : end]),
        opcode=opcode[1],
        operands=_operands(inside) if reads else (),
        literal="" if reads else inside.strip(),
        attributes=dict(_attributes(line, closing)),
        line=number,
    )
    number_of = {"parameter": instruction.literal, "get-tuple-element": instruction.attributes.get("index", "")}
    if not number_of.get(instruction.opcode, "0").isdecimal():
        raise ValueError(f"a {instruction.opcode} without its number")
    return instruction, start[1] is not None


def _operands(text: str) -> tuple[str, ...]:
    """Names of operands; a dump may write each one's shape before it, or leave the `%` out."""
    if "%" in text:
        return tuple(_OPERAND.findall(text))
    names = (_BARE_OPERAND.search(part) for part in _between_commas(text))
    return tuple(name[1] for name in names if name is not None)


def _attributes(text: str, start: int) -> Iterator[tuple[str, str]]:
    """`, key=value, …` from `start` on; what has no `=` is kept under its own text."""
    for part in _between_commas(text[start:].strip().removeprefix(",")):
        key = _ATTRIBUTE.match(part)
        yield (key[1], part[key.end() :].strip()) if key else (part.strip(), "")


def _between_commas(text: str) -> Iterator[str]:
    """The parts between commas that stand in no brackets and no string."""
    start = at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token[0] in "([{":
            at = _closing(text, token.start())
        elif token[0] == ",":
            yield text[start : token.start()]
            start = at
        elif token[0] in ")]}":
            raise ValueError("a bracket closes that was never opened")
    if text[start:].strip():
        yield text[start:]


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` has closed."""
    depth = 0
    for token in _TOKEN.finditer(text, opening):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
            if depth == 0:
                return token.end()
    raise ValueError("the text ends inside brackets")


def _check_whole(module: HloModule, *, last_line: int) -> None:
    """Every computation that is called is there, and one is the entry."""
    for computation in module.computations.values():
        for instruction in computation:
            for name in instruction.called(*_CALLING):
                if name not in module.computations:
                    raise _malformed(f"computation {name} is missing", module.where, instruction.line, instruction.name)
    if not module.entry:
        raise _malformed("no ENTRY computation: the text is cut short", module.where, last_line, module.name)


def _malformed(what: str, where: str, line: int, text: str) -> InputError:
    fix = "write or copy the text again, whole; one cut short cannot be read"
    return _refused(what, f"{where}: line {line}", text, fix)


def _refused(what: str, where: str, value: str, fix: str) -> InputError:
    return InputError(what, where=where, value=value, expected=_EXPECTED, fix=fix)
