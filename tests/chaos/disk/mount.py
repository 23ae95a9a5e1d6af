"""A disk for one folder, from the side of those who break it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.chaos.disk.volume import Figures

_ROOT: Final = Path(__file__).parents[3]
_DEVICE: Final = Path("/dev/fuse")


def see_disks_work() -> None:
    """Skip the test where no file system can be mounted; fail where tests must run."""
    if os.geteuid() == 0 and _DEVICE.exists():
        return
    reason = f"a file system is mounted by root through {_DEVICE}"
    if os.environ.get("CI"):  # noqa: TID251  # whether this run must be complete; no service reads it
        pytest.fail(reason)
    pytest.skip(reason)


class Disk:
    """A disk whose files are below a folder while the block runs; it is empty at first.

    All that uses it must have ended when the block ends.

    Args:
        folder: Created if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: subprocess.Popen[str] | None = None

    def limit(self, limit_bytes: int | None) -> None:
        """Bytes that files may have together from now on; None for no limit."""
        self._ask("limit", bytes=limit_bytes)

    def fill(self, *, left_bytes: int = 0) -> None:
        """Leave only so much room beyond what is used now."""
        self.limit(self.figures().used_bytes + left_bytes)

    def delay(self, *, write_s: float = 0.0, sync_s: float = 0.0) -> None:
        """Let each write and each sync take that much longer, in seconds; one waits for the other."""
        self._ask("delay", write_s=write_s, sync_s=sync_s)

    def stall(self) -> None:
        """Answer nobody until :meth:`go`."""
        self._ask("stall")

    def go(self) -> None:
        """Answer again."""
        self._ask("go")

    def write_back(self) -> None:
        """Make everything durable, as the operating system does after half a minute."""
        self._ask("write_back")

    def erase(self) -> None:
        """Lose all files; as with :meth:`lose_power`, nobody may use the disk."""
        self._ask("erase")

    def lose_power(self, seed: int | None = None) -> None:
        """Forget what was not synced; a seed draws what survives of that. Who used the disk must be killed before."""
        self._ask("lose_power", seed=seed)

    def figures(self) -> Figures:
        """Counts since the start."""
        return Figures(**self._ask("figures"))

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._child = subprocess.Popen(  # noqa: ASYNC220, S603  # our own interpreter and words; it answers at once
            [sys.executable, "-m", "tests.chaos.disk", str(self.folder)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        await asyncio.to_thread(self._answer)
        return self

    async def __aexit__(self, *_: object) -> None:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        await asyncio.to_thread(child.wait)
        child.stdout.close()

    def _ask(self, what: str, **words: object) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": what, **words}) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, "the file system has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer
