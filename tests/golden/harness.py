"""Runs lines of expected answers against production functions and counts what agrees.

Every family runs twice: with ``reference_parity``, where all must agree, and with Berth's defaults. There a documented
decision that is active for the line either says what is expected in the place of the reference's answer (``decided``),
or pardons a difference in some fields if the parity run agrees in them (``skipped``).
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from berth.schemas.ledger import Settings

Line = dict[str, Any]
Differences = tuple[tuple[str, str], ...]
"""Field and words for each answer that is not the expected one."""

PARITY: Final = Settings(reference_parity=True)
DEFAULTS: Final = Settings()
RUNS: Final = (("parity", PARITY), ("default", DEFAULTS))

_PLAN: Final = frozenset({"ok", "error", "rejected", "chosen_nodes", "pod_annotations", "switch_after"})
_BLOCKS: Final = frozenset({"by_phys", "by_vid"})
_ENTITLED: Final = frozenset({"deserved", "share", "order", "enqueueable", "lacking"})
_LIMITED: Final = frozenset({"limit", "enqueueable", "lacking", "allocatable"}) | _ENTITLED

DECISIONS: Final[Mapping[str, frozenset[str]]] = {
    "strict_job_shape": frozenset(),
    "310p-health-key": frozenset(),
    "softshare-self-compare": frozenset(),
    "annotations-in-1.0": frozenset(),
    "fill-crosses-leaf": frozenset(),
    "busy-from-decision": _PLAN,
    "order-free-merge": _PLAN,
    "slice-of-lost-pod": frozenset(),
    "deterministic-scores": frozenset({"chosen_nodes", "pod_annotations"}),
    "survivors-leaf": frozenset(),
    "D-1": frozenset(),
    "D-3": _BLOCKS,
    "D-4": _BLOCKS,
    "D-5": _BLOCKS,
    "D-6": _BLOCKS,
    "D-8": _BLOCKS,
    "D-10": _BLOCKS,
    "closed-branch": frozenset({"enqueueable", "lacking", "allocatable"}),
    "orphans-at-root": frozenset(
        {"allocated", "request", "inqueue", "elastic", "enqueueable", "lacking", "allocatable"}
    ),
    "guarantees-on-nodes": _LIMITED,
    "guarantee-over-the-parents-limit": _LIMITED,
    "by-weight": _ENTITLED,
    "deserved-over-limit": _ENTITLED,
    "deserved-is-no-limit": frozenset({"share", "order", "overused", "allocatable"}),
    "floors-within-the-sum": frozenset({"deserved"}),
    "priority-of-branch": frozenset({"order"}),
    "borrowers-by-weight": frozenset({"order"}),
    "minimum-from-pods": frozenset({"enqueueable", "lacking"}),
    "counts-only-what-stays": frozenset({"enqueueable", "lacking"}),
}
"""Documented decisions, and the compared fields in which each pardons a difference.

None where the answer that the decision demands is stated anew, so that it is compared in the reference's place. ``ok``
is pardoned only where the decision changes what is known of the cluster, so that another plan is made. What is pardoned
has to keep the rules of :mod:`tests.golden.block_invariants` or :mod:`tests.golden.leaf_invariants`.
"""

OUTCOME: Final = frozenset({"error", "ok"})
"""Fields that say what became of the whole line."""

LUCK: Final = frozenset({"unstable", "unsampled-order", "tie"})
"""Names under which whole lines are left out: what the reference answers follows from the order of its hash maps."""

DEFECTS: Final = frozenset({"a3-early-stop", "leaf-order", "one-broken-queue-stops-all"}) | LUCK
"""Names under which part of a line is left out in both runs: what a decision says not to copy, is
not built, or comes out of the reference by luck. ``leaf-order``: the answer is one for another order of the job's
leaves."""

ALLOWED: Final = frozenset(DECISIONS) | DEFECTS
SHOWN_MAX: Final = 3
"""Differences that are shown of each file and run."""


class Answer(NamedTuple):
    """What came of one line.

    Attributes:
        differences: Field and words for each answer that is not the expected one.
        skipped: Names under which part of the line was not compared.
        active: Decisions that the production code says are in force for the line.
        decided: Decisions that say what is expected in the place of the reference's answer, so that nothing is left
            out.
    """

    differences: Differences = ()
    skipped: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()


Compare = Callable[[Line, Settings], Answer]


class Tally(msgspec.Struct):
    """Counts of one file in one run."""

    family: str
    file: str
    run: str
    lines: int = 0
    compared: int = 0
    agreeing: int = 0
    differing: int = 0
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    """Lines of which something was left out, by name."""
    decided: Counter[str] = msgspec.field(default_factory=Counter)
    """Lines of which a decision says what is expected, by its name; nothing is left out of them for it."""
    shown: list[str] = []

    @property
    def failed(self) -> bool:
        """A difference, or something left out under a name that nobody allowed."""
        return self.differing > 0 or not ALLOWED.issuperset(self.skipped) or not DECISIONS.keys() >= self.decided.keys()

    def text(self) -> str:
        """The counts as one line, and the first differences below."""
        skipped, decided = (
            ", ".join(f"{name} {count}" for name, count in sorted(names.items())) or "none"
            for names in (self.skipped, self.decided)
        )
        strangers = sorted(set(self.skipped) - ALLOWED)
        head = (
            f"{self.file:<36} {self.run:<8} lines {self.lines:>6}  compared {self.compared:>6}"
            f"  agreeing {self.agreeing:>6}  differing {self.differing:>4}  skipped: {skipped}  decided: {decided}"
        )
        return "\n".join(
            [head, *self.shown, *(f"    skipped under a name that is not allowed: {name}" for name in strangers)]
        )


def read_lines(path: Path) -> Iterator[Line]:
    """Lines of a ``.jsonl`` or ``.jsonl.gz`` file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        for text in stream:
            if text.strip():
                yield json.loads(text)


def family_of(path: Path) -> str:
    """Family of a file: its name without the endings."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def vector_files(folder: Path) -> list[Path]:
    """Files of lines in a folder, by name."""
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])


class Judged(NamedTuple):
    """An answer after pardon.

    Attributes:
        differences: What no decision explains.
        skipped: Names under which part of the line did not count.
        decided: Decisions that said what was expected.
        is_compared: False where a decision pardons the outcome itself, so that nothing was left to compare.
    """

    differences: Differences
    skipped: tuple[str, ...]
    decided: tuple[str, ...] = ()
    is_compared: bool = True


def judge(compare: Compare, line: Line, settings: Settings) -> Judged:
    """Answer of a line with what decisions pardon taken out."""
    answer = compare(line, settings)
    if settings.reference_parity or not answer.differences or not answer.active:
        return Judged(answer.differences, answer.skipped, answer.decided, is_compared=LUCK.isdisjoint(answer.skipped))
    at_parity = {field for field, _ in compare(line, PARITY).differences}
    skipped = list(answer.skipped)
    pardoned: set[str] = set()
    rest = answer.differences
    for name in answer.active:
        fields = DECISIONS.get(name, frozenset()) - at_parity
        changed = {field for field, _ in rest} & fields
        if changed:
            skipped.append(name)
            pardoned |= changed
            rest = tuple((field, words) for field, words in rest if field not in fields)
    return Judged(rest, tuple(skipped), answer.decided, is_compared=bool(rest) or OUTCOME.isdisjoint(pardoned))


def run_file(path: Path, compare: Compare, *, run: str, settings: Settings) -> Tally:
    """Hold every line of a file against the production functions."""
    return run_lines(read_lines(path), compare, Tally(family_of(path), path.name, run), settings)


def run_lines(lines: Iterator[Line], compare: Compare, tally: Tally, settings: Settings) -> Tally:
    """Count the answers to ``lines`` into ``tally``."""
    for number, line in enumerate(lines, start=1):
        tally.lines += 1
        judged = judge(compare, line, settings)
        tally.skipped.update(judged.skipped)
        tally.decided.update(judged.decided)
        tally.compared += judged.is_compared
        tally.agreeing += judged.is_compared and not judged.differences
        if judged.differences:
            tally.differing += 1
            if tally.differing <= SHOWN_MAX:
                where = line.get("id") or f"line {number}"
                tally.shown.append(
                    f"    {where}: " + "; ".join(f"{field}: {words}" for field, words in judged.differences[:4])
                )
    return tally


def differ(field: str, expected: object, got: object, where: str = "") -> Differences:
    """Nothing where both are equal, else the field and words for it."""
    if expected == got:
        return ()
    return ((field, f"{where + ' ' if where else ''}expected {expected!r}, got {got!r}"),)
