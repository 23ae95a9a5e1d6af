"""The command ``berth`` as a process of its own."""

import asyncio
import sys
from collections.abc import Sequence


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
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env", *settings, sys.executable, "-m", "berth.cli", *words, *where,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
