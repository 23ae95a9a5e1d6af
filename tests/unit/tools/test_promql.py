"""The evaluator of PromQL: results that promtool 2.42 gave, and an error for what it does not evaluate."""

import math

import pytest

from berth.runtime.metrics import MetricsRegistry
from tests.support.promql import Labels, NotEvaluatedError, Scrapes, evaluate

TARGET = {"job": "x", "instance": "a:1"}


def labels(**pairs: str) -> Labels:
    return frozenset(pairs.items())


def scraped() -> Scrapes:
    """A counter that starts again after 180 s, a gauge with a label, and a histogram; scraped each minute."""
    registry, scrapes = MetricsRegistry(), Scrapes()
    gauge = registry.gauge("nodes", "Nodes.", ["level"])
    took = registry.seconds("took_seconds", "Time.", bounds=(1.0, 2.0))
    names = ["berth_nodes", "berth_took_seconds_bucket"]
    for minute, count in enumerate([0, 6, 12, 3, 9]):
        gauge.labels("ok").set(8 + minute)
        gauge.labels("evict").set(2)
        took.observe(0.5)
        took.observe(1.5)
        scrapes.read(60 * minute, TARGET, registry, names=names, others={"done_total": count})
    return scrapes


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("increase(done_total[5m])", 21),
        ("rate(done_total[5m])", 0.07),
        ("increase(done_total[170s])", 12.75),
        ("changes(done_total[5m])", 4),
        ("done_total", 9),
        ("sum(berth_nodes)", 14),
        ("max(berth_nodes) - min(berth_nodes)", 10),
        ("count(berth_nodes)", 2),
        ('sum(berth_nodes{level=~"ev.*"}) / sum(berth_nodes)', 1 / 7),
        ('sum(berth_nodes{level!~"ev.*"})', 12),
        ('sum(berth_nodes{level!="ok"}) or sum(nothing)', 2),
        ("sum(nothing) or 3 * sum(berth_nodes)", 42),
        ("histogram_quantile(0.75, sum by (le) (rate(berth_took_seconds_bucket[5m])))", 1.5),
        ("absent(nothing)", 1),
        ("up", 1),
    ],
)
def test_value_of_one_series(expr: str, value: float) -> None:
    (found,) = evaluate(expr, scraped(), 240).values()
    assert math.isclose(found, value)


def test_labels_of_the_result() -> None:
    scrapes = scraped()
    assert evaluate("sum by (level) (berth_nodes)", scrapes, 240) == {labels(level="ok"): 12, labels(level="evict"): 2}
    assert evaluate('absent(nothing{job="x"})', scrapes, 240) == {labels(job="x"): 1}
    assert evaluate("berth_nodes > 5", scrapes, 240) == {
        labels(__name__="berth_nodes", level="ok", job="x", instance="a:1"): 12
    }
    assert evaluate("berth_nodes unless on (job) done_total", scrapes, 240) == {}
    assert evaluate("count by (job) (berth_nodes) and on (job) done_total", scrapes, 240) == {labels(job="x"): 2}


def test_a_series_ends_with_its_target_and_after_a_while_without_scrapes() -> None:
    scrapes = scraped()
    assert evaluate("done_total", scrapes, 539)
    assert not evaluate("done_total", scrapes, 540)
    scrapes.drop(300, TARGET)
    assert not evaluate("done_total", scrapes, 300)
    assert not evaluate("rate(done_total[5m])", scrapes, 800)
    assert not evaluate("up", scrapes, 300)


def test_a_target_that_does_not_answer_is_down() -> None:
    scrapes = scraped()
    scrapes.read(300, TARGET, None, names=[])
    assert list(evaluate("up == 0", scrapes, 300).values()) == [0]
    assert not evaluate("done_total", scrapes, 300)


@pytest.mark.parametrize(
    "expr",
    [
        "rate(done_total[5m:1m])",
        "done_total offset 1m",
        "delta(done_total[5m])",
        "sum without (job) (done_total)",
        "topk(1, done_total)",
        "done_total > bool 1",
        "done_total * on (job) group_left () up",
        "done_total + ignoring (job) up",
        '{job="x"}',
        "-done_total",
        "absent(sum(nothing))",
        "up == on (job) berth_nodes",
    ],
)
def test_what_is_not_evaluated_is_an_error(expr: str) -> None:
    with pytest.raises(NotEvaluatedError):
        evaluate(expr, scraped(), 240)


@pytest.mark.parametrize("expr", ["sum(", "nosuch(up)", "rate(up)", 'up{job="x"'])
def test_what_is_not_promql_is_an_error(expr: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        evaluate(expr, scraped(), 240)
