"""What labels and annotations of a job say about faults."""

import pytest

from berth.core.requests.fault_rules import FaultRules, Finding, rules_of
from berth.schemas.fault_facts import joined


def test_a_job_that_says_nothing() -> None:
    assert rules_of({}, {}) == FaultRules()


def test_label_grace_or_force_of_two_pods_is_a_contradiction() -> None:
    labels = joined([{"fault-scheduling": "grace"}, {"fault-scheduling": "force"}, {"fault-scheduling": "grace"}])
    rules = rules_of(labels, {})
    assert (rules.scheduling, rules.scheduling_label) == ("invalid", "grace|force")
    ways = "grace, force, off, external-grace, external-force"
    assert rules.findings == (Finding("fault-scheduling", "grace|force", ways, contradicts=True),)


@pytest.mark.parametrize("way", ["grace", "force", "off", "external-grace", "external-force"])
def test_ways_of_deletion(way: str) -> None:
    rules = rules_of({"fault-scheduling": way}, {})
    assert (rules.scheduling, rules.findings) == (way, ())


@pytest.mark.parametrize(
    ("text", "retries", "findings"),
    [
        ("0", 0, 0),
        ("2", 2, 0),
        ("100", 100, 0),
        ("101", 0, 1),
        ("-1", 0, 1),
        ("two", 0, 1),
        ("1|2", 0, 1),
        ("02", 0, 1),
    ],
)
def test_retries(text: str, retries: int, findings: int) -> None:
    rules = rules_of({"fault-retry-times": text}, {})
    assert (rules.retries, len(rules.findings)) == (retries, findings)


def test_an_unknown_strategy_ignores_sub_health() -> None:
    assert rules_of({"subHealthyStrategy": "hotSwitch"}, {}).strategy == "hotSwitch"
    rules = rules_of({"subHealthyStrategy": "restart"}, {})
    assert (rules.strategy, [one.contradicts for one in rules.findings]) == ("ignore", [False])


def test_pause_is_not_on() -> None:
    found = [rules_of({"process-recover-enable": text}, {}) for text in ("on", "pause", "on|pause", "off")]
    assert [rules.process_recovery for rules in found] == ["on", "pause", "", ""]
    assert [len(rules.findings) for rules in found] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("labels", "path", "limit", "findings"),
    [
        ({}, "pod", "pod", 0),
        ({}, "job", "job", 0),
        ({}, "node", "", 1),
        ({"ome.io/inferenceservice": "chat"}, "job", "pod", 0),
        ({"app": "mindie-ms-controller"}, "", "pod", 0),
        ({"app": "mindie-ms-controller|mindie-ms-coordinator"}, "", "pod", 0),
    ],
)
def test_limits_of_escalation(labels: dict[str, str], path: str, limit: str, findings: int) -> None:
    rules = rules_of(labels, {"huawei.com/recover_policy_path": path} if path else {})
    assert (rules.limit, len(rules.findings)) == (limit, findings)


def test_faults_that_another_component_owns() -> None:
    assert rules_of({}, {"ProcessRecoverStrategy": ""}).has_owner
    assert rules_of({"elastic-scheduling": "on"}, {}).has_owner
    assert not rules_of({"elastic-scheduling": "off"}, {}).has_owner


def test_faulty_pods_first() -> None:
    assert rules_of({"pod-rescheduling": "on"}, {}).pods_first
    assert not rules_of({"pod-rescheduling": "on|off"}, {}).pods_first


def test_labels_are_joined_in_the_order_of_their_first_occurrence() -> None:
    sets = [{"b": "2"}, {"b": "1", "a": "x"}, {"b": "2|3"}]
    assert joined(sets) == {"a": "x", "b": "2|1|3"}
    assert list(joined(sets)) == ["a", "b"]
