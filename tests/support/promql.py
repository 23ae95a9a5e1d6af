"""Metrics as Prometheus would keep them, and the part of PromQL that the alert rules use.

An expression is parsed by promql-parser; what is not evaluated here is an error, so nothing is left out in silence.
Evaluated are: selectors, ``rate``, ``increase``, ``changes``, ``absent``, ``histogram_quantile``, the aggregations
``sum``, ``min``, ``max`` and ``count`` with ``by``, arithmetic, comparisons without ``bool``, and ``and``, ``or``,
``unless``, with ``on`` or on all labels, one series to one. Ranges are open on the left, as since Prometheus 3.
"""

import itertools
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import promql_parser as promql

from berth.runtime.metrics import MetricsRegistry

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Points: TypeAlias = list[tuple[float, float]]
"""Times in seconds, ascending, and values."""

LOOK_BACK_S: Final = 300
_NAME: Final = "__name__"
_STALE: Final = None
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else math.nan if left == 0 or math.isnan(left) else math.inf,
}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_SETS: Final = {"and", "or", "unless"}
_AGGREGATIONS: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "count": len,
}


class NotEvaluatedError(Exception):
    """An expression uses what is not evaluated here."""


class _Series(NamedTuple):
    labels: dict[str, str]
    points: list[tuple[float, float | None]]
    """None: the series ended before that time."""


class Scrapes:
    """Samples of targets over time."""

    def __init__(self) -> None:
        self._series: dict[str, dict[Labels, _Series]] = defaultdict(dict)
        self._alive: dict[Labels, set[tuple[str, Labels]]] = defaultdict(set)
        self.times_s: list[float] = []

    def read(
        self,
        at_s: float,
        target: Mapping[str, str],
        registry: MetricsRegistry | None,
        *,
        names: Iterable[str],
        others: Mapping[str, float] | None = None,
    ) -> None:
        """Scrape a target.

        Args:
            at_s: Time.
            target: Labels of the target.
            registry: Metrics of the target; None while it does not answer.
            names: Names of the samples to keep.
            others: Values of metrics without labels that replace or complete those of the registry.
        """
        wanted = set(names)
        found: dict[tuple[str, Labels], float] = {}
        if registry is not None:
            for family in registry.collectors.restricted_registry(sorted(wanted)).collect():
                for sample in family.samples:
                    if sample.name in wanted:
                        found[sample.name, frozenset({**sample.labels, **target}.items())] = sample.value
        for name, value in (others or {}).items():
            found[name, frozenset(target.items())] = value
        found["up", frozenset(target.items())] = float(registry is not None)
        self._store(at_s, frozenset(target.items()), found)

    def put(self, at_s: float, target: Mapping[str, str], samples: Mapping[tuple[str, Labels], float]) -> None:
        """Scrape a target of which the samples are given, by name and own labels."""
        own = {
            (name, frozenset({**dict(labels), **target}.items())): value for (name, labels), value in samples.items()
        }
        self._store(at_s, frozenset(target.items()), own)

    def drop(self, at_s: float, target: Mapping[str, str]) -> None:
        """Forget a target: its series end."""
        self._store(at_s, frozenset(target.items()), {})

    def _store(self, at_s: float, target: Labels, found: Mapping[tuple[str, Labels], float]) -> None:
        if not self.times_s or self.times_s[-1] < at_s:
            self.times_s.append(at_s)
        for name, labels in self._alive[target] - found.keys():
            self._series[name][labels].points.append((at_s, _STALE))
        for (name, labels), value in found.items():
            series = self._series[name].setdefault(labels, _Series(dict(labels), []))
            series.points.append((at_s, value))
        self._alive[target] = set(found)

    def chosen(self, selector: promql.VectorSelector) -> Iterator[tuple[Labels, list[tuple[float, float | None]]]]:
        """Series of a selector, with their names among the labels.

        Raises:
            NotEvaluatedError: It has an offset or a time, or names no metric.
        """
        if selector.offset is not None or selector.at is not None or selector.matchers.or_matchers:
            raise NotEvaluatedError(selector.prettify())
        if not selector.name:
            raise NotEvaluatedError(f"{selector.prettify()} names no metric")
        for labels, series in self._series.get(selector.name, {}).items():
            if all(_matches(matcher, series.labels) for matcher in selector.matchers.matchers):
                yield labels | {(_NAME, selector.name)}, series.points


def _matches(matcher: promql.Matcher, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case promql.MatchOp.Equal:
            return value == matcher.value
        case promql.MatchOp.NotEqual:
            return value != matcher.value
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
        case _:
            return re.fullmatch(matcher.value, value) is None


def evaluate(text: str, scrapes: Scrapes, at_s: float) -> Vector:
    """Value of an expression at a time.

    Raises:
        ValueError: It is not PromQL.
        NotEvaluatedError: It uses what is not evaluated here, or is no vector.
    """
    return _vector(promql.parse(text), scrapes, at_s)


def _vector(expr: promql.Expr, scrapes: Scrapes, at_s: float) -> Vector:
    match expr:
        case promql.ParenExpr():
            return _vector(expr.expr, scrapes, at_s)
        case promql.VectorSelector():
            return _instant(expr, scrapes, at_s)
        case promql.AggregateExpr():
            return _aggregated(expr, scrapes, at_s)
        case promql.Call():
            return _called(expr, scrapes, at_s)
        case promql.BinaryExpr():
            return _combined(expr, scrapes, at_s)
        case _:
            raise NotEvaluatedError(expr.prettify())


def _instant(selector: promql.VectorSelector, scrapes: Scrapes, at_s: float) -> Vector:
    found = {}
    for labels, points in scrapes.chosen(selector):
        last = next((point for point in reversed(points) if point[0] <= at_s), None)
        if last is not None and last[1] is not None and last[0] > at_s - LOOK_BACK_S:
            found[labels] = last[1]
    return found


def _without_name(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != _NAME)


def _only(labels: Labels, names: Iterable[str]) -> Labels:
    kept = set(names)
    return frozenset(pair for pair in labels if pair[0] in kept)


def _aggregated(expr: promql.AggregateExpr, scrapes: Scrapes, at_s: float) -> Vector:
    do = _AGGREGATIONS.get(str(expr.op))
    if do is None or expr.param is not None:
        raise NotEvaluatedError(expr.prettify())
    by: list[str] = []
    if expr.modifier is not None:
        if expr.modifier.type != promql.AggModifierType.By:
            raise NotEvaluatedError(expr.prettify())
        by = expr.modifier.labels
    groups: dict[Labels, list[float]] = defaultdict(list)
    for labels, value in _vector(expr.expr, scrapes, at_s).items():
        groups[_only(labels, by)].append(value)
    return {labels: float(do(values)) for labels, values in groups.items()}


def _called(expr: promql.Call, scrapes: Scrapes, at_s: float) -> Vector:
    name, *arguments = expr.func.name, *expr.args
    match name, arguments:
        case "rate" | "increase" | "changes", [promql.MatrixSelector() as matrix]:
            range_s = matrix.range.total_seconds()
            over = {"rate": _rate, "increase": _increase, "changes": _changes}[name]
            found = {}
            for labels, points in scrapes.chosen(matrix.vector_selector):
                kept = [(at, value) for at, value in points if at_s - range_s < at <= at_s and value is not None]
                result = over(kept, at_s - range_s, at_s)
                if result is not None:
                    found[_without_name(labels)] = result
            return found
        case "absent", [promql.VectorSelector() as selector]:
            given = {
                (matcher.name, matcher.value)
                for matcher in selector.matchers.matchers
                if matcher.op == promql.MatchOp.Equal
            }
            return {} if _instant(selector, scrapes, at_s) else {frozenset(given): 1.0}
        case "histogram_quantile", [promql.NumberLiteral() as quantile, buckets]:
            return _quantiles(quantile.val, _vector(buckets, scrapes, at_s))
        case _:
            raise NotEvaluatedError(expr.prettify())


def _changes(points: Points, _from_s: float, _to_s: float) -> float | None:
    if not points:
        return None
    values = [value for _, value in points]
    return float(sum(before != after for before, after in itertools.pairwise(values)))


def _rate(points: Points, from_s: float, to_s: float) -> float | None:
    increase = _increase(points, from_s, to_s)
    return None if increase is None else increase / (to_s - from_s)


def _increase(points: Points, from_s: float, to_s: float) -> float | None:
    """Increase of a counter, extrapolated to the range as Prometheus does; None for fewer than two points."""
    if len(points) < 2:
        return None
    values = [value for _, value in points]
    increase = values[-1] - values[0]
    increase += sum(before for before, after in itertools.pairwise(values) if after < before)
    sampled_s = points[-1][0] - points[0][0]
    apart_s = sampled_s / (len(points) - 1)
    to_start_s, to_end_s = points[0][0] - from_s, to_s - points[-1][0]
    if increase > 0 and values[0] >= 0:
        to_start_s = min(to_start_s, sampled_s * values[0] / increase)
    whole_s = sampled_s
    for beyond_s in (to_start_s, to_end_s):
        whole_s += beyond_s if beyond_s < apart_s * 1.1 else apart_s / 2
    return increase * whole_s / sampled_s


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, value in buckets.items():
        bound = dict(labels).get("le", "")
        if bound:
            group = frozenset(pair for pair in _without_name(labels) if pair[0] != "le")
            groups[group].append((float(bound), value))
    return {labels: _quantile(quantile, sorted(group)) for labels, group in groups.items()}


def _quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    total = buckets[-1][1]
    if len(buckets) < 2 or not math.isinf(buckets[-1][0]) or total == 0:
        return math.nan
    rank = quantile * total
    index = next(number for number, (_, count) in enumerate(buckets) if count >= rank)
    if index == len(buckets) - 1:
        return buckets[-2][0]
    bound, count = buckets[index]
    start, below = buckets[index - 1] if index else (0.0, 0.0)
    if index == 0 and bound <= 0:
        return bound
    return start + (bound - start) * (rank - below) / (count - below)


def _combined(expr: promql.BinaryExpr, scrapes: Scrapes, at_s: float) -> Vector:
    sign, modifier = str(expr.op), expr.modifier
    if modifier is not None and (modifier.return_bool or modifier.group_labels is not None):
        raise NotEvaluatedError(expr.prettify())
    if isinstance(expr.rhs, promql.NumberLiteral):
        number = expr.rhs.val
        left = _vector(expr.lhs, scrapes, at_s)
        if sign in _COMPARISONS:
            return {labels: value for labels, value in left.items() if _COMPARISONS[sign](value, number)}
        return {_without_name(labels): _ARITHMETIC[sign](value, number) for labels, value in left.items()}
    if isinstance(expr.lhs, promql.NumberLiteral):
        if sign not in _ARITHMETIC:
            raise NotEvaluatedError(expr.prettify())
        number, right = expr.lhs.val, _vector(expr.rhs, scrapes, at_s)
        return {_without_name(labels): _ARITHMETIC[sign](number, value) for labels, value in right.items()}
    left, right = _vector(expr.lhs, scrapes, at_s), _vector(expr.rhs, scrapes, at_s)
    on = None
    if modifier is not None and modifier.matching is not None:
        if modifier.matching.type != promql.LabelModifierType.Include:
            raise NotEvaluatedError(expr.prettify())
        on = modifier.matching.labels

    def key(labels: Labels) -> Labels:
        return _without_name(labels) if on is None else _only(labels, on)

    if sign in _SETS:
        return _joined(sign, left, right, key)
    return _matched(expr, left, right, key)


def _joined(sign: str, left: Vector, right: Vector, key: Callable[[Labels], Labels]) -> Vector:
    others = {key(labels) for labels in right}
    if sign == "and":
        return {labels: value for labels, value in left.items() if key(labels) in others}
    if sign == "unless":
        return {labels: value for labels, value in left.items() if key(labels) not in others}
    known = {key(labels) for labels in left}
    return left | {labels: value for labels, value in right.items() if key(labels) not in known}


def _matched(expr: promql.BinaryExpr, left: Vector, right: Vector, key: Callable[[Labels], Labels]) -> Vector:
    sign = str(expr.op)
    others = {key(labels): value for labels, value in right.items()}
    if len(others) != len(right) or len({key(labels) for labels in left}) != len(left):
        raise NotEvaluatedError(f"several series of {expr.prettify()} have the same labels")
    found: Vector = {}
    for labels, value in left.items():
        if key(labels) not in others:
            continue
        other = others[key(labels)]
        if sign in _COMPARISONS:
            if _COMPARISONS[sign](value, other):
                found[labels] = value
        else:
            found[key(labels)] = _ARITHMETIC[sign](value, other)
    return found


def selectors(expr: promql.Expr) -> Iterator[promql.VectorSelector]:
    """All selectors of an expression.

    Raises:
        NotEvaluatedError: It has a part that is not evaluated here.
    """
    match expr:
        case promql.VectorSelector():
            yield expr
        case promql.MatrixSelector():
            yield expr.vector_selector
        case promql.ParenExpr() | promql.AggregateExpr():
            yield from selectors(expr.expr)
        case promql.BinaryExpr():
            yield from selectors(expr.lhs)
            yield from selectors(expr.rhs)
        case promql.Call():
            for argument in expr.args:
                yield from selectors(argument)
        case promql.NumberLiteral():
            return
        case _:
            raise NotEvaluatedError(expr.prettify())
