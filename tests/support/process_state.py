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


def stands(pid: int) -> bool:
    """Whether all threads of a process are stopped; also if it is gone."""
    return all(process_state(int(task.name)) in {"T", ""} for task in Path(f"/proc/{pid}/task").glob("*"))


async def stop_process(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until all its threads stand: on a busy machine some run on for a while.

    Raises:
        AssertionError: They run on.
    """
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: stands(pid), deadline_s=10, what=f"process {pid} stands")
