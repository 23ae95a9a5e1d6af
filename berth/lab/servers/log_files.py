"""Log files of child processes, which are kept from growing without bound.

A child writes to the end of its file through a descriptor that it inherited. So the file is copied and emptied, not
renamed: the child goes on at its new end. Lines that it writes between the copy and the emptying are lost.
"""

import os
import shutil
from pathlib import Path
from typing import Final

SIZE_MAX_BYTES: Final = 16 << 20
"""A file of at least this size is put aside."""
KEPT: Final = 3
"""Files that are kept beside the current one."""


def put_aside(path: Path, *, size_max_bytes: int = SIZE_MAX_BYTES, kept: int = KEPT) -> bool:
    """Copy a log file to ``NAME.1`` and empty it if it is large; older copies get the next number, the oldest goes.

    Args:
        path: The file; nothing is done if it does not exist. Its writer must have opened it for appending.
        size_max_bytes: As above.
        kept: As above.

    Returns:
        Whether it was large.

    Raises:
        OSError: There is no room for the copy; the file is as before.
    """
    try:
        if path.stat().st_size < size_max_bytes:
            return False
    except FileNotFoundError:
        return False
    part = _numbered(path, 0)
    try:
        shutil.copyfile(path, part)
    except OSError:
        if part.is_file():
            part.unlink()
        raise
    for number in range(kept - 1, -1, -1):
        older = _numbered(path, number)
        if older.exists():
            older.replace(_numbered(path, number + 1))
    os.truncate(path, 0)
    return True


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
