"""What the kernel says of a process."""

from pathlib import Path


def process_state(pid: int) -> str:
    """State of a process as the kernel names it, such as ``S`` for one that waits; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""
