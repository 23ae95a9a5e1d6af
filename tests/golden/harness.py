"""Runs lines of expected answers against production functions and counts what agrees.

Every family runs twice: with ``reference_parity``, where all must agree, and with Berth's defaults, where a difference
is pardoned only if a documented decision that is active for the line explains it and the parity run agrees there.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from schemas.ledger import Settings

Line = dict[str, Any]

PARITY: Final = Settings(reference_parity=True)
DEFAULTS: Final = Settings()
RUNS: Final = (("parity", PARITY), ("default", DEFAULTS))

_PLAN: Final = frozenset({"ok", "error", "chosen_nodes", "pod_annotations", "switch_after"})
_EVENT: Final = frozenset(f"event {field}" for field in _PLAN)
_REPLACEMENT: Final = frozenset({"ok", "error", "rejected", "chosen_nodes"})
_BLOCKS: Final = frozenset({"ok", "by_phys", "by_vid"})

DECISIONS: Final[Mapping[str, frozenset[str]]] = {
    "strict_job_shape": frozenset({"error"}),
    "310p-health-key": frozenset({"scores"}),
    "softshare-self-compare": frozenset({"scores"}),
    "annotations-in-1.0": frozenset({"pod_annotations", "event pod_annotations"}),
    "fill-crosses-leaf": _PLAN | _EVENT,
    "busy-from-decision": _PLAN | _REPLACEMENT | {"switch_before"},
    "order-free-merge": _PLAN | _REPLACEMENT | {"switch_before"},
    "slice-of-lost-pod": _REPLACEMENT,
    "deterministic-scores": frozenset({"chosen_nodes"}),
    "survivors-leaf": _REPLACEMENT,
    "D-1": _BLOCKS,
    "D-3": _BLOCKS,
    "D-4": _BLOCKS,
    "D-5": _BLOCKS,
    "D-6": _BLOCKS,
    "D-8": _BLOCKS,
    "D-10": _BLOCKS,
}
"""Documented decisions, and the compared fields that each may change."""

OUTCOME: Final = frozenset({"error", "ok"})
"""Fields that say what became of the whole line."""

LUCK: Final = frozenset({"unstable", "unsampled-order", "tie", "D-1"})
"""Names under which whole lines are left out: what the reference answers follows from the order of its hash maps, or it
crashes (D-1)."""

DEFECTS: Final = frozenset({"a3-early-stop"}) | LUCK
"""Names under which part of a line is left out in both runs: what the specification says not to copy, is
not built, or comes out of the reference by luck."""

ALLOWED: Final = frozenset(DECISIONS) | DEFECTS
SHOWN_MAX: Final = 3
"""Differences that are shown of each file and run."""


class Answer(NamedTuple):
    """What came of one line.

    Attributes:
        differences: Field and words for each answer that is not the expected one.
        skipped: Names under which part of the line was not compared.
        active: Decisions that the production code says are in force for the line.
    """

    differences: tuple[tuple[str, str], ...] = ()
    skipped: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


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
    shown: list[str] = []

    @property
    def failed(self) -> bool:
        """A difference, or something left out under a name that nobody allowed."""
        return self.differing > 0 or not ALLOWED.issuperset(self.skipped)

    def text(self) -> str:
        """The counts as one line, and the first differences below."""
        skipped = ", ".join(f"{name} {count}" for name, count in sorted(self.skipped.items())) or "none"
        strangers = sorted(set(self.skipped) - ALLOWED)
        head = (
            f"{self.file:<36} {self.run:<8} lines {self.lines:>6}  compared {self.compared:>6}"
            f"  agreeing {self.agreeing:>6}  differing {self.differing:>4}  skipped: {skipped}"
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
        is_compared: False where a decision pardons the outcome itself, so that nothing was left to compare.
    """

    differences: tuple[tuple[str, str], ...]
    skipped: tuple[str, ...]
    is_compared: bool = True


def judge(compare: Compare, line: Line, settings: Settings) -> Judged:
    """Answer of a line with what decisions pardon taken out."""
    answer = compare(line, settings)
    if settings.reference_parity or not answer.differences or not answer.active:
        return Judged(answer.differences, answer.skipped, is_compared=LUCK.isdisjoint(answer.skipped))
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
    return Judged(rest, tuple(skipped), is_compared=bool(rest) or OUTCOME.isdisjoint(pardoned))


def run_file(path: Path, compare: Compare, *, run: str, settings: Settings) -> Tally:
    """Hold every line of a file against the production functions."""
    return run_lines(read_lines(path), compare, Tally(family_of(path), path.name, run), settings)


def run_lines(lines: Iterator[Line], compare: Compare, tally: Tally, settings: Settings) -> Tally:
    """Count the answers to ``lines`` into ``tally``."""
    for number, line in enumerate(lines, start=1):
        tally.lines += 1
        judged = judge(compare, line, settings)
        tally.skipped.update(judged.skipped)
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


def differ(field: str, expected: object, got: object, where: str = "") -> tuple[tuple[str, str], ...]:
    """Nothing where both are equal, else the field and words for it."""
    if expected == got:
        return ()
    return ((field, f"{where + ' ' if where else ''}expected {expected!r}, got {got!r}"),)
