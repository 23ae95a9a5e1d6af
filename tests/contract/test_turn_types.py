"""The steps of a turn cannot be mixed up: mypy rejects one that is left out or out of order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """
from berth.core.changes import Changes
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Choice, MissingShards, Opening, Recorded
from berth.core.state.ledger import Folded


def steps(scheduler: Scheduler, opening: Opening, choice: Choice, recorded: Recorded, folded: Folded) -> None:
"""
RIGHT = {
    "a turn that is stored": """
    found, _ = scheduler.open(5)
    if found is not None:
        stored = scheduler.record(scheduler.choose(found, {}, found.asks, MissingShards()))
        scheduler.adopt(stored, folded)
""",
    "a turn that is taken back": """
    found = scheduler.open(5).opening
    if found is not None:
        scheduler.take_back(found)
""",
    "a record of another": """
    scheduler.follow(folded)
    scheduler.follow(folded, opening)
    scheduler.note(folded.changes)
""",
}
WRONG = {
    "nothing to decide is not looked at": "    scheduler.choose(scheduler.open(5).opening, {}, {}, MissingShards())\n",
    "what open returns taken for the opening": "    scheduler.choose(scheduler.open(5), {}, {}, MissingShards())\n",
    "what open returns taken for a turn": "    scheduler.take_back(scheduler.open(5))\n",
    "errors that are changed": "    scheduler.open(5).set_aside = ()\n",
    "recorded without a choice": "    scheduler.record(opening)\n",
    "chosen again": "    scheduler.choose(choice, {}, {}, MissingShards())\n",
    "adopted without a record": "    scheduler.adopt(choice, folded)\n",
    "adopted without what was folded": "    scheduler.adopt(recorded)\n",
    "what was folded taken for the turn": "    scheduler.adopt(folded, folded)\n",
    "taken back without the turn": "    scheduler.take_back()\n",
    "a record taken for a turn": "    scheduler.adopt(recorded.round, folded)\n",
    "begun without the changes": "    scheduler.begin()\n",
    "a change that is changed": "    folded.changes.leaf_opened = True\n",
    "rows of a change that are changed": "    folded.changes.capacity_gained[0] = None\n",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Errors of mypy by what was written; all of it in one run."""
    folder = tmp_path_factory.mktemp("turns")
    names = {f"turn_{number}": name for number, name in enumerate([*RIGHT, *WRONG])}
    for module, name in names.items():
        (folder / f"{module}.py").write_text(HEAD + (RIGHT | WRONG)[name].lstrip("\n"))
    files = [str(folder / f"{module}.py") for module in names]
    done = subprocess.run(  # noqa: S603  # the tree's own tool
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for module, error in re.findall(r"(turn_\d+)\.py:\d+: error: (.*)", done.stdout):
        found[names[module]].append(error)
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", RIGHT)
def test_the_steps_in_their_order_are_accepted(report: dict[str, list[str]], name: str) -> None:
    assert report[name] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", WRONG)
def test_a_step_that_is_missing_or_misplaced_is_rejected(report: dict[str, list[str]], name: str) -> None:
    (error,) = report[name]
    assert re.search(r"\[(arg-type|call-arg|misc|index)\]$", error), error
