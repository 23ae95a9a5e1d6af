"""Conclusion from the statistics of timelines: one to three sentences, with numbers, that hold whatever the order.

Columns with equal statistics count as one. A metric is compared only where that is fair: waiting times and the makespan
of the same number of jobs, spans of the same number of jobs, and lower bounds only against smaller numbers. Numbers
that are equal as they are printed count as equal.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from berth.core.simulation.judged_metrics import (
    METRICS,
    PLACED,
    Metric,
    Number,
    duration_text,
    share_text,
    time_number,
    unit_of,
)
from berth.core.simulation.statistics import Statistics

_NAMED_MAX: Final = 3
"""Metrics that a sentence names."""
_SAME_MAX: Final = 4
"""Metrics without a difference that are named."""
_TITLES_MAX: Final = 4
"""Titles that a list names; of more it gives the number of the others."""
_TIMES_FROM: Final = 10
"""Ratio from which it is not a difference in percent."""
_LETTERS: Final = frozenset(" ,;:()\"'")
"""Letters that need quotes around a title."""
_CHANCE: Final = "The failures are those of one seed: small differences can be chance, so compare several seeds."


class _Column(NamedTuple):
    """Equal columns.

    Attributes:
        titles: Their titles, ascending.
        known: Their statistics.
    """

    titles: list[str]
    known: Statistics


_Pair: TypeAlias = tuple[_Column, Number]


class _Ranking(NamedTuple):
    """Columns by a metric.

    Attributes:
        metric: The metric.
        best: The best column, and those that are not known to be worse than it.
        others: The others, best first; empty if no difference is known.
    """

    metric: Metric
    best: list[_Pair]
    others: list[_Pair]


def conclusion_of(statistics: Sequence[Statistics], *, resolution_ms: int = 0) -> list[str]:
    """Sentences on what the columns show, the most important first; equal for each order of the columns.

    Args:
        statistics: A column each, one or more, with distinct titles.
        resolution_ms: Smaller differences of waiting times are not significant.
    """
    columns = _distinct(statistics)
    if not any(column.known.jobs for column in columns):
        return ["There are no jobs."]
    if not any(column.known.placed for column in columns):
        where = " in any column" if len(statistics) > 1 else ""
        return [f"No job was placed{where}. {_fates(columns)}"]
    if len(columns) == 1:
        known = columns[0].known
        names = columns[0].titles
        equal = [f"There is no difference: all figures of {_listed(names)} are equal."] if len(names) > 1 else []
        return [*equal, _sentence(_fate(known)), _summary(known)]
    missing = any(known.placed < known.jobs for _, known in columns)
    first = [_fates(columns)] if missing else []
    return [*first, *_compared(columns, resolution_ms)]


def _distinct(statistics: Sequence[Statistics]) -> list[_Column]:
    """Columns with different statistics, by their titles."""
    titles: dict[bytes, list[str]] = {}
    kept: dict[bytes, Statistics] = {}
    for known in statistics:
        untitled = msgspec.structs.replace(known, title="")
        key = msgspec.json.encode(untitled, order="deterministic")
        titles.setdefault(key, []).append(known.title)
        kept[key] = untitled
    in_order = sorted(kept, key=lambda key: (sorted(titles[key]), key))
    return [_Column(sorted(titles[key]), kept[key]) for key in in_order]


def _fates(columns: Sequence[_Column]) -> str:
    """Counts of the jobs that were not placed, for each column if they differ."""
    by_text: dict[str, list[str]] = {}
    for column in columns:
        by_text.setdefault(_fate(column.known), []).extend(column.titles)
    if len(by_text) == 1:
        return _sentence(next(iter(by_text)))
    return _sentence("; ".join(f"with {_listed(titles)}, {text}" for text, titles in by_text.items()))


def _fate(known: Statistics) -> str:
    counts = (
        (known.turned_away, "rejected"),
        (known.waiting, "still waiting at the end"),
        (known.taken_back, "cancelled before placement"),
    )
    parts = [f"{count:,} {words}" for count, words in counts if count]
    noun = "job" if known.jobs == 1 else "jobs"
    if not parts:
        return "the only job was placed" if known.jobs == 1 else f"all {known.jobs:,} jobs were placed"
    return f"{known.placed:,} of {known.jobs:,} {noun} {'was' if 1 in (known.placed, known.jobs) else 'were'} placed, {_and(parts)}"


def _summary(known: Statistics) -> str:
    """Main figures of one column."""
    parts = [
        f"{metric.name} {number.text}"
        for metric in METRICS
        if (number := metric.number(known)) and metric is not PLACED
    ]
    if known.allocation_share is not None:
        parts.append(f"chip time in use {share_text(known.allocation_share)}")
    return _sentence("; ".join(parts))


def _compared(columns: Sequence[_Column], resolution_ms: int) -> list[str]:
    """Sentences on the differences between columns."""
    rankings: list[_Ranking] = []
    unknown: list[str] = []
    for metric in METRICS:
        pairs = _numbers(metric, columns)
        if len(pairs) < len(columns):
            continue
        found = _ranked(metric, pairs, resolution_ms)
        if found is None:
            unknown.append(metric.name)
        else:
            rankings.append(found)
    first = next((ranking for ranking in rankings if ranking.others), None)
    rest = f" Not compared, because of different jobs or a lower bound: {_and(unknown)}." if unknown else ""
    if first is None:
        within = f" (in waiting times, of more than {duration_text(resolution_ms)})" if resolution_ms else ""
        same = [f"{ranking.metric.name} ({_range(ranking.best)})" for ranking in rankings]
        more = [f"{len(same) - _SAME_MAX} more"] if len(same) > _SAME_MAX else []
        text = (
            f"No difference{within} in: {_and([*same[:_SAME_MAX], *more])}."
            if same
            else "No main figure can be compared."
        )
        return [f"{text} Other figures differ; the table has all of them.{rest}"]
    chance = _CHANCE if any(column.known.faults is not None for column in columns) else ""
    last = " ".join(text for text in (_costs(first, rankings, len(columns)), chance) if text)
    return [f"{_lead(first, rankings, len(columns))}{rest}", *([last] if last else [])]


def _numbers(metric: Metric, columns: Sequence[_Column]) -> list[_Pair]:
    """Numbers of the columns that have one, durations in one unit where that is readable."""
    pairs = [(column, number) for column in columns if (number := metric.number(column.known)) is not None]
    positive = [number.value for _, number in pairs if number.value > 0]
    if not metric.is_duration or not positive:
        return pairs
    scale_ms, unit = unit_of(max(positive))
    if min(positive) < scale_ms:
        return pairs
    return [(column, time_number(number.value, scale_ms, unit, at_least=number.at_least)) for column, number in pairs]


def _ranked(metric: Metric, pairs: Sequence[_Pair], resolution_ms: int) -> _Ranking | None:
    """Columns by a metric that all of them have; None if they cannot be compared."""
    if len({metric.jobs(column.known) for column, _ in pairs}) > 1:
        return None
    exact = [number for _, number in pairs if not number.at_least]
    if not exact:
        return None
    least = min(exact)
    limit = least.value + (resolution_ms if metric.is_wait else 0)
    best: list[_Pair] = []
    others: list[_Pair] = []
    for column, number in pairs:
        is_near = number.value <= limit or number.text == least.text
        if number.at_least and (is_near or number.text.endswith(f" {least.text}")):
            return None
        (best if is_near else others).append((column, number))
    return _Ranking(metric, best, sorted(others, key=lambda pair: (pair[1].value, pair[0].titles)))


def _lead(first: _Ranking, rankings: Sequence[_Ranking], count: int) -> str:
    """What the best columns are better in."""
    winners = [column for column, _ in first.best]
    names = _names(winners)
    adjective = first.metric.better if count == 2 else first.metric.best  # noqa: PLR2004  # two are compared, more have a best
    text = f"The {first.metric.name} is {adjective} with {names}: {_against(first.best, first.others)}"
    also = [
        f"{ranking.metric.name} ({_against(ranking.best, ranking.others, are_named=count > 2)})"  # noqa: PLR2004  # of two
        for ranking in rankings
        if ranking is not first and ranking.others and [column for column, _ in ranking.best] == winners
    ]
    return f"{text}; also better: {_and(also[:_NAMED_MAX])}." if also else f"{text}."


def _costs(first: _Ranking, rankings: Sequence[_Ranking], count: int) -> str:
    """What others are better in than all of the best columns; empty if there is nothing."""
    winners = [column for column, _ in first.best]
    parts = []
    for ranking in rankings:
        own = [(column, number) for column, number in ranking.others if column in winners]
        if len(own) == len(winners):
            parts.append(f"{ranking.metric.name} ({_against(own, ranking.best, are_named=count > 2)})")  # noqa: PLR2004  # of two
    more = f"; {len(parts) - _NAMED_MAX} more in the table" if len(parts) > _NAMED_MAX else ""
    return f"In return these are worse with {_names(winners)}: {_and(parts[:_NAMED_MAX])}{more}." if parts else ""


def _names(columns: Sequence[_Column]) -> str:
    return _listed([title for column in columns for title in column.titles])


def _against(best: Sequence[_Pair], others: Sequence[_Pair], *, are_named: bool = True) -> str:
    """Numbers of some columns against those of others, such as ``30.0 s against 60.0 s with fifo, -50.0 %``."""
    titles = [title for column, _ in others for title in column.titles]
    text = f"{_range(best)} against {_range(others)}{f' with {_listed(titles)}' if are_named else ''}"
    if len({number.text for _, number in (*best, *others)}) != 2:  # noqa: PLR2004  # one against one
        return text
    (_, one), (_, other) = best[0], others[0]
    is_share = one.text.endswith("%")
    if is_share or one.at_least or other.at_least or min(one.value, other.value) <= 0:
        return text
    return f"{text}, {_relation(one.value / other.value)}"


def _relation(ratio: float) -> str:
    """A ratio in words: a difference in percent, or how many times as much or as little."""
    if ratio >= _TIMES_FROM:
        return f"{ratio:,.0f} times as much"
    if ratio <= 1 / _TIMES_FROM:
        return f"1/{1 / ratio:,.0f} of it"
    return f"{ratio - 1:+.1%}".replace("%", " %")


def _range(pairs: Sequence[_Pair]) -> str:
    """Number of columns, or the smallest and the largest."""
    numbers = sorted((number for _, number in pairs), key=lambda number: (abs(number.value), number.text))
    first, last = numbers[0].text, numbers[-1].text
    return first if first == last else f"{first} to {last}"


def _listed(titles: Sequence[str]) -> str:
    """Titles in ascending order."""
    named = [_quoted(title) for title in sorted(titles)]
    if len(named) > _TITLES_MAX:
        named = [*named[: _TITLES_MAX - 1], f"{len(named) - _TITLES_MAX + 1} others"]
    return _and(named)


def _quoted(title: str) -> str:
    words = " ".join(title.split())
    return f"'{words}'" if not words or _LETTERS & set(words) else words


def _and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
