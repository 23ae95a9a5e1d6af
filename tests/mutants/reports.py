"""What people read of mutants: a line for each, and the page with the score."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tests.mutants.outcomes import Mutant, Outcome
from tests.mutants.trees import package_of

_SHOWN: Final = 160
_HEAD: Final = """# Mutants

Small faults that are generated from the syntax tree of the product, and what tests make of them. `make mutants
N={count} SEED={seed}` writes this page; [testing](../testing.md#mutants) says how.

- mutants: {count} of {all}, seed {seed}
- tree: {tree}
- tests: {folders}

The share is that of the mutants that a test notices, by failing or by taking too long, among those that are not
equivalent. Of the survivors, {unseen} are in code that no test executes in its own process; tests that start processes
are not asked.

| package | mutants | killed | timed out | survived | not executed | equivalent | share |
|---|---|---|---|---|---|---|---|
"""
_SURVIVORS: Final = """
## Survivors

| mutant | before | after | tests that ran |
|---|---|---|---|
"""
_EQUIVALENT: Final = """
## Equivalent

| mutant | before | after | why |
|---|---|---|---|
"""


class Sample(NamedTuple):
    """What a page is about.

    Attributes:
        seed: Of the choice.
        all: Number of mutants that could have been chosen.
        tree: What identifies the tree.
        folders: Folders of tests that were asked.
    """

    seed: int
    all: int
    tree: str
    folders: str


def line_of(mutant: Mutant, outcome: Outcome) -> str:
    """A line on one mutant."""
    why = f" by {outcome.killer}" if outcome.killer else f" {outcome.tests} tests"
    return f"{outcome.verdict:<9} {mutant.name} {outcome.seconds:.1f} s{why}"


def page_of(sample: Sample, outcomes: Iterable[tuple[Mutant, Outcome]], equivalent: Mapping[str, str]) -> str:
    """The page.

    Args:
        sample: What it is about.
        outcomes: What became of each mutant.
        equivalent: Why some of them are, by name.
    """
    rows = sorted(outcomes, key=lambda row: row[0].name)
    packages: dict[str, Counter[str]] = {}
    for mutant, outcome in rows:
        count = packages.setdefault(package_of(mutant.path), Counter())
        count[_kind(mutant, outcome, equivalent)] += 1
        count["not executed"] += _is_unseen(mutant, outcome, equivalent)
    total = sum(packages.values(), Counter[str]())
    head = _HEAD.format(count=len(rows), unseen=total["not executed"], **sample._asdict())
    table = "".join(_score(name, count) for name, count in [*sorted(packages.items()), ("all", total)])
    left = [row for row in rows if _kind(*row, equivalent) == "survived"]
    survivors = "".join(
        f"| `{mutant.name}` | {_code(mutant.old)} | {_code(mutant.new)} | {outcome.tests} |\n"
        for mutant, outcome in left
    )
    same = "".join(
        f"| `{mutant.name}` | {_code(mutant.old)} | {_code(mutant.new)} | {equivalent[mutant.name]} |\n"
        for mutant, _ in rows
        if mutant.name in equivalent
    )
    return head + table + (_SURVIVORS + survivors if left else "") + (_EQUIVALENT + same if same else "")


def summary_of(outcomes: Iterable[tuple[Mutant, Outcome]], equivalent: Mapping[str, str]) -> str:
    """The closing line."""
    count = Counter(_kind(mutant, outcome, equivalent) for mutant, outcome in outcomes)
    words = ", ".join(f"{kind} {count[kind]}" for kind in ("killed", "timed out", "survived", "equivalent"))
    return f"{words}: {_share(count)}"


def _kind(mutant: Mutant, outcome: Outcome, equivalent: Mapping[str, str]) -> str:
    return "equivalent" if mutant.name in equivalent else outcome.verdict


def _is_unseen(mutant: Mutant, outcome: Outcome, equivalent: Mapping[str, str]) -> bool:
    return _kind(mutant, outcome, equivalent) == "survived" and not outcome.tests


def _score(name: str, count: Counter[str]) -> str:
    mutants = sum(count[kind] for kind in ("killed", "timed out", "survived", "equivalent"))
    figures = [mutants, *(count[kind] for kind in ("killed", "timed out", "survived", "not executed", "equivalent"))]
    return f"| {name} | {' | '.join(map(str, figures))} | {_share(count)} |\n"


def _share(count: Counter[str]) -> str:
    noticed = count["killed"] + count["timed out"]
    most = noticed + count["survived"]
    return f"{100 * noticed / most:.1f} %" if most else "-"


def _code(words: str) -> str:
    cut = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."
    return f"`{cut}`".replace("|", "\\|")
