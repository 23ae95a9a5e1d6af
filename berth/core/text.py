"""Numbers in sentences: a count with its noun, lists of numbers, and what a sentence says without its numbers."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

_NUMBER: Final = re.compile(r"(?<![\w.:/=-])\d+(?:,\d{3})*(?![\w/=-])|\d{4}-\d\d-\d\dT[\d:]+Z")
"""A number or a moment, not one inside a name."""
_WORD: Final = re.compile(r"\w+")
_CLAUSE: Final = re.compile(r"[,;:] ")
_SEVERAL: Final = {
    "belongs": "belong",
    "chip": "chips",
    "does": "do",
    "finds": "find",
    "fits": "fit",
    "has": "have",
    "is": "are",
    "it": "they",
    "lacks": "lack",
    "node": "nodes",
    "pod": "pods",
    "reports": "report",
    "takes": "take",
}
"""Words about one, and about several."""

DRAINED: Final = {"node": "node", "leaf": "leaf switch", "superpod": "SuperPoD"}
"""What kinds of drained places are called."""


def pluralize(count: int, noun: str) -> str:
    """A number and what it counts: ``1 node``, ``2 leaves``, ``23,000 chips``."""
    if count == 1:
        return f"1 {noun}"
    return (
        f"{count:,} {noun[:-1]}ves"
        if noun.endswith("leaf")
        else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"
    )


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, runs of three or more as ranges: ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in parts)  # noqa: PLR2004  # two are no range


def numbered(noun: str, numbers: Collection[int]) -> str:
    """What numbers stand for, and these as ranges: ``chip 3``, ``ranks 0-31``."""
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {ranges(numbers)}"


def span(numbers: Sequence[int]) -> str:
    """The least and the greatest of numbers: ``8-1,024``, or ``8`` if all are equal."""
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,}-{most:,}"


def cause_of(sentence: str) -> frozenset[str]:
    """Clauses of a sentence without their numbers, in any order: equal where two sentences differ in numbers alone."""
    plain = _WORD.sub(lambda word: _SEVERAL.get(word[0], word[0]), _NUMBER.sub("#", sentence))
    return frozenset(_CLAUSE.split(plain))
