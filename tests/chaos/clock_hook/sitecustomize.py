"""Shifts the wall clock of a process: Python imports this module at its start if its folder is in PYTHONPATH.

``CHAOS_CLOCK`` names a file of eight bytes, the shift in ns. It is read at each look at the clock, so a step happens
while the process runs, as when somebody sets the clock of its host. ``time.monotonic`` is not shifted, as there.
"""

import mmap
import os
import struct
import time


def _shift(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    shift = mmap.mmap(file, 8, prot=mmap.PROT_READ)
    os.close(file)
    real_ns = time.time_ns

    def time_ns() -> int:
        return real_ns() + int(struct.unpack_from("<q", shift)[0])

    def now() -> float:
        return time_ns() / 1e9

    time.time_ns = time_ns
    time.time = now  # noqa: TID251  # libraries read it


if "CHAOS_CLOCK" in os.environ:  # noqa: TID251  # the process does not know of it
    _shift(os.environ["CHAOS_CLOCK"])  # noqa: TID251  # likewise
