"""How large a file is that is about to be read whole: devices and pipes, which need not end, are none."""

from __future__ import annotations

from stat import S_ISREG
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def regular_size_bytes(path: Path) -> int | None:
    """Bytes of a regular file; None for a folder, a device or a pipe.

    Raises:
        OSError: There is no such file, or it cannot be asked about.
    """
    status = path.stat()
    return status.st_size if S_ISREG(status.st_mode) else None
