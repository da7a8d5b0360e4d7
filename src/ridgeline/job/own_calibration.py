"""A user's own calibration: a folder of files that `ridgeline calibrate --output` wrote, read with the job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX: Final = ".toml"
_LARGEST_BYTES = 1_000_000
_MOST_FILES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCalibration:
    """The files of a folder, not yet understood.

    Attributes:
        folder: Where they stand, as seen from the current folder.
        texts: Their content by name: `tpu7x.toml`, `uncertainty.toml`.
    """

    folder: str
    texts: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """The content of a file; None where there is none of that name."""
        return self.texts.get(name)


def read_own_calibration(folder: str, *, where: str) -> OwnCalibration:
    """The calibration files of a folder.

    Args:
        folder: Its path.
        where: The flag or key it came from, for error messages.

    Raises:
        InputError: It is no folder, holds no such file, or one cannot be read.
    """

    def refuse(what: str, expected: str) -> InputError:
        fix = "write one with ridgeline calibrate --from CASES --output FOLDER"
        return InputError(what, where=where, value=folder, expected=expected, fix=fix)

    try:
        path = Path(folder)
        if not folder.strip() or not path.is_dir():
            raise refuse("no such folder", "a folder of calibration files")
        files = sorted(file for file in path.glob(f"*{_SUFFIX}") if file.is_file())
        if not files:
            raise refuse("a folder without calibration files", f"files that end in {_SUFFIX}")
        if len(files) > _MOST_FILES or any(file.stat().st_size > _LARGEST_BYTES for file in files):
            expected = f"at most {_MOST_FILES} files of {_LARGEST_BYTES:,} bytes"
            raise refuse("too much for a calibration", expected)
        texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    except UnicodeDecodeError:
        raise refuse("a calibration file is not text", "TOML in UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise refuse(f"cannot read the calibration: {reason}", "a folder that can be read") from None
    return OwnCalibration(folder=folder, texts=MappingProxyType(texts))
