"""How long prompts or replies are, as a job says it: one number, a distribution in a few, or a file of lengths.

    1024                            all alike
    { mean = 1024, sigma = 0.6 }    lognormal: sigma is the standard deviation of the logarithm
    { p50 = 800, p90 = 2000 }       lognormal, by what 50 and 90 of 100 stay below
    { min = 100, max = 2000 }       each length as likely
    { file = "lengths.txt" }        each of a file of lengths, one a line, as likely

A lognormal length is cut at `max`, or where it is left out at the longest of a thousand; `mean` is that of lengths as
they are cut.
"""

from __future__ import annotations

from math import exp, log
from os.path import normpath
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.job.file_size import regular_size_bytes
from ridgeline.job.traffic import (
    UNCUT_SIGMAS,
    EmpiricalLength,
    FixedLength,
    LognormalLength,
    UniformLength,
    cut_mean,
    cut_mean_ratio,
)
from ridgeline.units import parse_count, parse_whole

if TYPE_CHECKING:
    from ridgeline.job.document import LengthTable
    from ridgeline.job.origin import Origin
    from ridgeline.job.traffic import Length

MOST_TOKENS = 1e9
"""Of a prompt or a reply."""

_MOST_SIGMA: Final = 3.0
"""Nine of ten lengths then lie within a factor of 140 of the median, on either side."""

_MOST_LENGTHS = 1_000_000
_MOST_BYTES: Final = 32_000_000
_P90_SIGMAS: Final = NormalDist().inv_cdf(0.9)
_FORMS: Final = {
    ("mean", "sigma"): ("max",),
    ("p50", "p90"): ("max",),
    ("min", "max"): (),
    ("file",): (),
}
"""Keys that belong together, and those that may stand beside them."""

_EXPECTED = "a number, or mean and sigma, p50 and p90, min and max, or a file"


def read_length(value: str | float | LengthTable, key: str, origin: Origin, *, folder: str) -> Length:
    """How long prompts or replies are.

    Args:
        value: As a job says it.
        key: Its path in a job file.
        origin: Where it was written, for error messages.
        folder: What a relative path of a file counts from.

    Raises:
        InputError: A number makes no sense, keys do not belong together, or a file or a line of it is malformed.
    """
    where = origin.of(key)
    if isinstance(value, str | int | float):
        return FixedLength(tokens=parse_tokens(value, where=where))
    said: dict[str, str | float] = value.model_dump(exclude_none=True)
    match _form(said, where):
        case ("mean", "sigma"):
            return _by_mean(said, where)
        case ("p50", "p90"):
            return _by_quantiles(said, where)
        case ("min", "max"):
            least, most = (parse_tokens(said[name], where=f"{where}: {name}") for name in ("min", "max"))
            if most < least:
                raise _refused("max is less than min", f"{where}: max", said["max"], f"{least:,} or more", "swap them")
            return UniformLength(least_tokens=least, most_tokens=most)
        case _:
            return read_lengths(str(said["file"]), folder="." if origin.gives(key) else folder, where=where)


def parse_tokens(value: str | float, *, where: str) -> int:
    """A whole number of tokens, at least one."""
    return parse_whole(value, where=where, unit="tokens", most=MOST_TOKENS)


def read_lengths(file: str, *, folder: str, where: str) -> EmpiricalLength:
    """The lengths of a file: a whole number of tokens a line; empty lines do not count."""
    path = normpath(Path(folder) / file)
    try:
        size_bytes = regular_size_bytes(Path(path))
        if size_bytes is None:
            raise _refused("the lengths are not a file", where, file, "a file of numbers", "give the path of a file")
        if size_bytes > _MOST_BYTES:
            raise _refused("the file is too large", where, file, f"{_MOST_BYTES:,} bytes at most", "draw some lines")
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise _refused("the file is not text", where, file, "a number a line", "check the path") from None
    except OSError as error:
        what = f"cannot read the lengths: {error.strerror}"
        raise _refused(what, where, file, "a file of numbers, one a line", "check the path") from None
    tokens = tuple(
        parse_tokens(line, where=f"{path}: line {number}") for number, line in enumerate(lines, start=1) if line.strip()
    )
    if not tokens or len(tokens) > _MOST_LENGTHS:
        what = "too many lengths" if tokens else "the file has no lengths"
        raise _refused(what, where, file, f"1 to {_MOST_LENGTHS:,} lines with a number each", "check the file")
    return EmpiricalLength(tokens=tokens, file=path)


def _form(said: dict[str, str | float], where: str) -> tuple[str, ...]:
    """The keys by which a length is said, of those that belong together."""
    for form, beside in _FORMS.items():
        if said.keys() >= set(form) and said.keys() <= {*form, *beside}:
            return form
    raise _refused("these do not say a length", where, ", ".join(said) or "(nothing)", _EXPECTED, "say one of these")


def _tokens(said: dict[str, str | float], name: str, where: str) -> float:
    """A mean or a quantile of tokens: it need not be whole."""
    tokens = parse_count(said[name], where=f"{where}: {name}", unit="tokens")
    if not 1 <= tokens <= MOST_TOKENS:
        raise _refused(f"{name} is no number of tokens", f"{where}: {name}", said[name], "1 or more", "check the unit")
    return tokens


def _by_mean(said: dict[str, str | float], where: str) -> LognormalLength:
    """Lengths of this mean once they are cut."""
    mean, sigma, most = (
        _tokens(said, "mean", where),
        parse_count(said["sigma"], where=f"{where}: sigma", example="0.6"),
        _most(said, where),
    )
    if most is not None and (mean > most or (sigma and mean == most)):
        raise _refused("max is not above the mean", f"{where}: max", most, f"more than {mean:,.0f}", "raise max")
    return _checked(LognormalLength(mean_tokens=mean, sigma=sigma, most_tokens=most), where)


def _by_quantiles(said: dict[str, str | float], where: str) -> LognormalLength:
    """Lengths of this median, of which nine of ten stay below `p90`."""
    median, high, most = _tokens(said, "p50", where), _tokens(said, "p90", where), _most(said, where)
    if high < median:
        raise _refused("p90 is less than p50", f"{where}: p90", said["p90"], f"{said['p50']} or more", "swap")
    if most is not None and most < median:
        raise _cuts_most(most, median, where)
    if most is not None and most < high:
        raise _refused("max is less than p90", f"{where}: max", most, f"{high:,.0f} or more", "raise max, or lower p90")
    if high > median * exp(_MOST_SIGMA * _P90_SIGMAS):
        expected = f"at most {median * exp(_MOST_SIGMA * _P90_SIGMAS):,.0f} for a p50 of {median:,.0f}"
        raise _refused("p90 is absurdly far above p50", f"{where}: p90", said["p90"], expected, "check the unit")
    sigma = log(high / median) / _P90_SIGMAS
    mean = median * cut_mean_ratio(sigma, UNCUT_SIGMAS) if most is None else cut_mean(median, sigma, most)
    return _checked(LognormalLength(mean_tokens=mean, sigma=sigma, most_tokens=most), where)


def _checked(found: LognormalLength, where: str) -> LognormalLength:
    """Refuses what no requests are like."""
    if found.sigma > _MOST_SIGMA:
        fix = "give the standard deviation of the natural logarithm: 0.6 for lengths that vary by a factor of 2 or so"
        raise _refused("sigma is absurdly large", f"{where}: sigma", found.sigma, f"0 to {_MOST_SIGMA:g}", fix)
    median, most = found.median_tokens, found.most_tokens
    if most is not None and round(median) > most:
        raise _cuts_most(most, median, where)
    if round(median) < 1:
        what = f"half of these lengths would be below one token: {median:.2g}"
        raise _refused(what, where, f"sigma {found.sigma:g}", "lengths of 1 or more", "lower sigma, or raise the mean")
    if found.longest_tokens > MOST_TOKENS:
        raise _refused("these lengths are absurd", where, found.longest_tokens, "fewer tokens", "say max, too")
    return found


def _cuts_most(most: int, median: float, where: str) -> InputError:
    what = "max cuts more than half of all lengths"
    return _refused(what, f"{where}: max", most, f"more than {median:,.0f}", "raise max, or lower the others")


def _most(said: dict[str, str | float], where: str) -> int | None:
    return parse_tokens(said["max"], where=f"{where}: max") if "max" in said else None


def _refused(what: str, where: str, value: object, expected: str, fix: str) -> InputError:
    return InputError(what, where=where, value=value, expected=expected, fix=fix)
