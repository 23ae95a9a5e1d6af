"""Short runs of chaos on real components, each in a process and a network of its own."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ROOT


class Ended(NamedTuple):
    """How a run ended, and all that it printed."""

    code: int
    text: str


def chaos(*words: str, timeout_s: float, folder: Path) -> Ended:
    """Run ``python -m tests.chaos``.

    Args:
        words: Its arguments.
        timeout_s: It is killed after so long.
        folder: Where its cells keep their files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-m", "tests.chaos", "--folder", str(folder), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def see_nothing_lost(ended: Ended, *kinds: str) -> None:
    """See that a run ended well, that faults of these kinds were injected, and that jobs were acknowledged.

    Raises:
        AssertionError: It is not so; shows all that the run printed.
    """
    assert ended.code == 0, ended.text
    assert "lost 0, doubled 0, other violations 0" in ended.text, ended.text
    injected = next(line for line in ended.text.splitlines() if " faults in " in line)
    assert [kind for kind in kinds if f" {kind} " not in injected] == [], ended.text
    assert not any(line.startswith("submits: 0 acknowledged") for line in ended.text.splitlines()), ended.text
