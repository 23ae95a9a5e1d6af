"""What people read of mutants: a line for each, the closing line, and the table."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.mutants.outcomes import Outcome
from tests.mutants.patches import Mutant

TABLE: Final = "README.md"
"""File of this folder that holds the table."""
_HEAD: Final = """# Mutants

Each patch in this folder is a small fault. `make mutants` applies one after the other to a copy of the tree and runs the tests
named here; each of them alone must fail. It remembers in `mutants.json` what it has tried and does not try it again until the
patch, a file that it changes or a file with its tests is another. `make mutants ARGS=<name>` tries those whose names begin so.

A patch begins with `Mutant:` and what the change does, and `Killed-by:` with a test, or `Equivalent:` with the reason why no test
can notice it. A new one needs a line here: `python -m tests.mutants --table > tests/mutants/README.md`. `Simulated:` says whether
a seed of the simulation has to notice it, too: `make sim-mutants`, `docs/testing.md`.

| mutant | the change | killed by |
|---|---|---|
"""


def line_of(mutant: Mutant, outcome: Outcome) -> str:
    """A line on one mutant."""
    why = f" ({outcome.why})" if outcome.why else ""
    return f"{outcome.verdict:<18} {mutant.name} {outcome.seconds:.1f} s{why}"


def summary_of(outcomes: Iterable[Outcome]) -> str:
    """The closing line."""
    count = Counter(outcome.verdict for outcome in outcomes)
    late = count["killed by time-out"]
    killed = f"killed {count['killed'] + late}" + (f" ({late} by time-out)" if late else "")
    return f"{killed}, equivalent {count['equivalent']}, survived {count['survived']}, broken {count['broken']}"


def table_of(mutants: Sequence[Mutant]) -> str:
    """The table of all mutants, as the folder's page."""
    rows = [f"| `{mutant.name}` | {_cell(mutant.says)} | {_killers(mutant)} |\n" for mutant in mutants]
    return _HEAD + "".join(rows)


def _killers(mutant: Mutant) -> str:
    if mutant.equivalent:
        return f"equivalent: {_cell(mutant.equivalent)}"
    return "<br>".join(f"`{_cell(test)}`" for test in mutant.killed_by)


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
