"""What the kernel says of a process."""

import os
import signal
from pathlib import Path

from tests.support.waiting import until


def process_state(pid: int) -> str:
    """State of a process as the kernel names it, such as ``S`` for one that waits; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def stop_process(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until all its threads stand: on a busy machine some run on for a while.

    Raises:
        AssertionError: They run on.
    """
    os.kill(pid, signal.SIGSTOP)

    def stands() -> bool:
        stats = [path.read_text("utf-8") for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    await until(stands, deadline_s=10, what=f"process {pid} stands")
