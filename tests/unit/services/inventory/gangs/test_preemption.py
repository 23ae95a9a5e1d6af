"""What jobs say of preemption: by their PodGroup, their owner, their pods and their PriorityClass."""

from typing import Any

import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.policies import PriorityClass
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.intake import CHECKPOINT_AT, Preemption
from tests.support.gang_world import (
    BASE,
    GangWorld,
    a_group,
    a_pod,
    facts_of,
    in_namespace,
    members,
    requested,
    running,
)

PREEMPTABLE, COOLDOWN, NOTICE = "volcano.sh/preemptable", "volcano.sh/cooldown-time", "berth/preempt-notice-s"
NO = {PREEMPTABLE: "false"}


def said(world: GangWorld) -> list[Preemption | None]:
    """What each published request says."""
    return [request.preemption for request in world.published]


def classes(**policies: str) -> list[PriorityClass]:
    return [
        PriorityClass(metadata=Meta(name=name), value=10, global_default=name == "usual", preemption_policy=policy)
        for name, policy in policies.items()
    ]


def change(world: GangWorld, **group: Any) -> None:  # noqa: ANN401 - whatever a group can have
    """The PodGroup of a gang of two changes."""
    world.gangs.set_group(a_group("pg", least=2, version="9", **group))
    world.settle()


def test_a_gang_that_says_nothing_is_requested_as_before() -> None:
    world = requested(2, annotations={CHECKPOINT_AT: "2026-11-20T10:00:00Z"})
    assert said(world) == [None]
    assert CHECKPOINT_AT not in world.requests[BASE].annotations


def test_the_podgroup_counts_before_its_pods() -> None:
    world = GangWorld()
    world.gangs.set_group(
        a_group("pg", least=2, annotations={PREEMPTABLE: "true", NOTICE: "30"}, labels={COOLDOWN: "5m"})
    )
    world.pods(*members(2, annotations={PREEMPTABLE: "false", NOTICE: "60"}, labels={COOLDOWN: "1h"}))
    world.settle()
    assert said(world) == [Preemption(is_declared=True, cooldown_s=300, notice_s=30)]
    assert PREEMPTABLE not in world.requests[BASE].annotations


def test_one_pod_that_says_no_is_enough_for_the_gang() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3))
    world.pods(*members(2, annotations={PREEMPTABLE: "true"}), a_pod("p-2", group="pg", annotations=NO))
    world.settle()
    assert said(world) == [Preemption(preemptable=False)]


def test_the_owner_of_pods_without_a_podgroup_counts_before_them() -> None:
    key = OwnerKey("PyTorchJob", "ns", "llm")
    world = GangWorld()
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    owner = ("kubeflow.org/v1", "PyTorchJob", "llm", "u")
    world.pods(a_pod("llm-worker-0", owner=owner, labels=labels, annotations={PREEMPTABLE: "true"}))
    world.settle()
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    world.gangs.set_owner(key, facts_of(key, spec, uid="u", annotations=NO))
    world.settle()
    assert said(world) == [Preemption(preemptable=False)]


def test_a_value_that_cannot_be_read_is_told_with_the_request() -> None:
    world = GangWorld()
    world.pods(a_pod("a", annotations={PREEMPTABLE: "maybe"}))
    world.settle()
    why = f"annotation {PREEMPTABLE} of pod a is 'maybe': expected true or false; it counts as false"
    assert said(world) == [Preemption(preemptable=False, ignored=[why])]


@pytest.mark.parametrize(
    ("pods", "group", "never"),
    [
        ({}, "meek", True),
        ({}, "bold", False),
        ({"priority_class": "own", "spec": {"preemptionPolicy": "PreemptLowerPriority"}}, "meek", False),
        ({"priority_class": "own", "spec": {"preemptionPolicy": "Never"}}, "bold", True),
        ({"priority_class": "usual", "spec": {"preemptionPolicy": "Never"}}, "bold", False),
        ({"priority_class": "usual", "spec": {"preemptionPolicy": "Never"}}, "", True),
        ({"spec": {"preemptionPolicy": "Never"}}, "missing", True),
    ],
)
def test_the_class_that_gives_the_priority_says_whether_others_end(
    pods: dict[str, Any], group: str, *, never: bool
) -> None:
    world = GangWorld()
    world.gangs.set_priority_classes(classes(meek="Never", bold="PreemptLowerPriority", own="", usual="Never"))
    world.gangs.set_group(a_group("pg", least=1, priority_class=group))
    given = {"spec": {"priorityClassName": pods.get("priority_class", "")} | pods.get("spec", {})}
    world.pods(*members(1, **given))
    world.settle()
    assert said(world) == [Preemption(never=True) if never else None]


def test_a_class_of_the_system_makes_a_gang_critical() -> None:
    by_group = GangWorld()
    by_group.gangs.set_group(a_group("pg", least=1, priority_class="system-node-critical"))
    by_group.pods(*members(1))
    by_group.settle()
    by_pods = GangWorld()
    by_pods.pods(a_pod("a", priority_class="system-cluster-critical"))
    by_pods.settle()
    assert said(by_group) == said(by_pods) == [Preemption(critical=True)]


def test_pods_of_the_namespace_of_the_system_are_critical() -> None:
    world = GangWorld()
    world.pods(in_namespace("kube-system", a_pod("a")), in_namespace("team", a_pod("b", uid="uid-b")))
    world.settle()
    assert {one.namespace: one.preemption for one in world.published} == {
        "kube-system": Preemption(critical=True),
        "team": None,
    }


def test_a_change_of_a_gang_that_waits_or_runs_changes_its_request_in_place() -> None:
    for world in (requested(2), running(2)):
        change(world, annotations=NO)
        world.verdict(BASE)
        change(world, annotations={NOTICE: "30"})
        world.verdict(BASE)
        change(world)
        assert said(world) == [None, Preemption(preemptable=False), Preemption(notice_s=30), None]
        assert len({request.uid for request in world.published}) == 1
        assert world.withdrawn == []


def test_a_change_of_a_pod_changes_the_request_of_its_gang() -> None:
    world = running(2)
    world.pods(*members(1, node="n1", phase="Running", annotations=NO))
    world.settle()
    assert said(world) == [None, Preemption(preemptable=False)]


def test_a_gang_that_runs_keeps_what_its_class_said_until_it_waits_again() -> None:
    world = running(2)
    world.gangs.set_priority_classes(classes(meek="Never"))
    change(world, priority_class="meek")
    change(world, priority_class="system-node-critical")
    assert said(world) == [None]
    world.status(BASE, "waiting", attempt=2)
    world.pods(*members(2))
    world.settle()
    assert world.requests[BASE].preemption == Preemption(critical=True)


def test_a_class_that_is_deleted_leaves_the_policy_of_the_pods() -> None:
    world = GangWorld()
    world.gangs.set_priority_classes(classes(meek="Never"))
    world.gangs.set_group(a_group("pg", least=2, priority_class="meek"))
    world.pods(*members(2))
    world.settle()
    world.verdict(BASE)
    world.gangs.set_priority_classes([])
    world.settle()
    assert said(world) == [Preemption(never=True), None]


def test_a_gang_keeps_what_its_podgroup_said_when_that_is_gone_or_a_pod_of_it_is() -> None:
    world = running(2, annotations=NO)
    world.gangs.drop_pod("uid-p-0")
    world.settle()
    world.gangs.drop_group("ns", "pg")
    world.settle()
    assert said(world) == [Preemption(preemptable=False)]
