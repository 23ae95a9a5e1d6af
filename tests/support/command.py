"""The command ``berth`` as a process of its own."""

import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.forks import FORKER, Start
from tests.support.waiting import until

_DEADLINE_S: Final = 120.0


async def berth(*words: str, url: str = "", cell: str = "", settings: Sequence[str] = ()) -> tuple[int, str, str]:
    """Run the command.

    Args:
        words: Its arguments.
        url: Address of NATS; empty for a command that needs none.
        cell: Name of the cell.
        settings: Variables of its environment, such as ``BERTH_BUS__USER=me``.

    Returns:
        Its exit code, and what it printed to stdout and to stderr.
    """
    where = ("--url", url, "--cell", cell) if url else ()
    environment = {**os.environ, **dict(one.split("=", 1) for one in settings)}  # noqa: TID251  # as a shell has it
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = FORKER.start(Start("berth.cli", [*words, *where], environment, str(out), str(err)))
        try:
            await until(lambda: process.poll() is not None, deadline_s=_DEADLINE_S, what=f"the end of berth {words}")
        finally:
            process.send_signal(signal.SIGKILL)
        return process.wait() or 0, _text_of(out), _text_of(err)


def _text_of(path: Path) -> str:
    return path.read_text("utf-8")
