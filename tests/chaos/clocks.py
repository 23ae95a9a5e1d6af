"""Clocks of processes that can be set."""

import struct
from pathlib import Path
from typing import Final

_HOOK: Final = Path(__file__).parent / "clock_hook"


class SteppedClock:
    """The wall clock of the processes that are started with :attr:`env`.

    Args:
        path: File of the shift.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shift_s = 0.0
        path.write_bytes(bytes(8))

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of such a process."""
        return {"PYTHONPATH": str(_HOOK), "CHAOS_CLOCK": str(self.path)}

    def set(self, shift_s: float) -> None:
        """Shift the clock by so much from now on, in seconds; negative for the past."""
        self.shift_s = shift_s
        with self.path.open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", round(shift_s * 1e9)))  # in place: processes have mapped it
