"""Short runs of chaos on real components, each in a process and a network of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.fault import Setup
from tests.chaos.schedule import SHORT, Plan
from tests.support.processes import ROOT

_SEED: Final = 69
"""Of whose first faults each kind is within five rounds, in cells of both kinds."""


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


def see_nothing_lost(setup: Setup, *, rounds: int, timeout_s: float, folder: Path) -> set[str]:
    """Let a cell live through some short rounds; see that all their faults were injected, and that nothing was lost.

    Returns:
        Kinds of the faults.

    Raises:
        AssertionError: It is not so; shows all that the run printed.
    """
    plan = Plan(_SEED, setup, length=SHORT)
    kinds = {strike.fault.kind for _ in range(rounds) for strike in plan.next_round()}
    words = ["--cells", f"{setup.world}-{setup.servers}", "--seconds", "0", "--rounds", str(rounds)]
    ended = chaos(*words, "--seed", str(_SEED), "--short", timeout_s=timeout_s, folder=folder)
    assert ended.code == 0, ended.text
    assert "lost 0, doubled 0, other violations 0" in ended.text, ended.text
    told = next(line for line in ended.text.splitlines() if " faults in " in line).partition(": ")[2]
    injected = {item.rpartition(" ")[0] for item in told.split(", ")}
    assert sorted(kinds - injected) == [], ended.text
    return kinds
