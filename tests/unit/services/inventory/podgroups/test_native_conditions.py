"""Conditions of PodGroups of Kubernetes: what is said of them and when, and how it is written."""

from typing import Any, Final

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.services.inventory.effects import GroupCondition, PatchNativeGroup
from berth.services.inventory.podgroups.native_conditions import write_condition
from tests.support.fake_kube import FakeKube
from tests.support.gang_world import GangWorld, a_pod, facts_of

G: Final = OwnerKey("NativePodGroup", "ns", "g")
GANG: Final = {"schedulingPolicy": {"gang": {"minCount": 2}}}
NAME: Final = "native.g"
NO_ROOM: Final = ("g", "False", "Unschedulable", "1 of 2 pods find room: 3 of 4 nodes are full")
SCHEDULED: Final = ("g", "True", "Scheduled", "")


def pods(count: int, start: int = 0, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    return [a_pod(f"p-{index}", spec=dict(spec), **more) for index in range(start, start + count)]


def a_world(*there: Pod, spec: dict[str, Any] | None = None) -> GangWorld:
    world = GangWorld()
    world.pods(*there)
    world.settle()
    world.gangs.set_owner(G, facts_of(G, dict(spec or GANG), uid="uid-g"))
    world.settle()
    return world


def refused(world: GangWorld, words: str) -> None:
    world.status(NAME, "waiting", code="no-room", sentence=words)
    world.settle()


def test_nothing_is_said_while_pods_are_missing_or_nothing_is_decided() -> None:
    world = a_world(*pods(1))
    assert world.hold(NAME) == "1 of at least 2 pods exists"
    world.pods(*pods(1, 1))
    world.settle()
    world.verdict(NAME)
    world.status(NAME, "waiting")
    world.settle()
    assert world.conditions == []


def test_that_a_group_is_not_scheduled_is_said_again_when_the_cause_changes_alone() -> None:
    world = a_world(*pods(2))
    world.verdict(NAME)
    refused(world, NO_ROOM[3])
    refused(world, "1 of 2 pods find room: 2 of 4 nodes are full")
    assert world.conditions == [NO_ROOM]
    refused(world, "1 of 2 pods find room: 4 nodes are cordoned")
    assert [said[3] for said in world.conditions[1:]] == ["1 of 2 pods find room: 4 nodes are cordoned"]


def test_that_it_is_scheduled_is_said_once_for_good_when_enough_pods_have_nodes() -> None:
    world = a_world(*pods(2))
    world.verdict(NAME)
    refused(world, NO_ROOM[3])
    world.status(NAME, "placed")
    world.pods(*pods(1, node="n1"))
    world.settle()
    assert world.conditions == [NO_ROOM]
    world.pods(*pods(1, 1, node="n2"))
    world.settle()
    world.gangs.drop_pod("uid-p-1")
    world.settle()
    assert world.conditions == [NO_ROOM, SCHEDULED]


def test_a_group_without_a_gang_is_scheduled_with_its_first_pod() -> None:
    world = a_world(*pods(2), spec={"schedulingPolicy": {"basic": {}}})
    world.pods(*pods(1, node="n1"))
    world.settle()
    assert world.conditions == [SCHEDULED]


@pytest.mark.parametrize(
    ("spec", "others", "why"),
    [
        (GANG | {"parentCompositePodGroupName": "t"}, (), "PodGroup g has spec.parentCompositePodGroupName t: expected none"),
        (GANG, pods(1, 2, scheduler="default-scheduler"), "the pods of PodGroup g name several schedulers"),
    ],
)  # fmt: skip
def test_a_group_that_cannot_be_judged_is_an_error_that_names_the_field(
    spec: dict[str, Any], others: tuple[Pod, ...], why: str
) -> None:
    ((_, status, reason, message),) = a_world(*pods(2), *others, spec=spec).conditions
    assert (status, reason, message[: len(why)]) == ("False", "SchedulerError", why)


def test_a_group_that_is_made_again_is_told_anew() -> None:
    world = a_world(*pods(2, node="n1"))
    assert world.conditions == [SCHEDULED]
    world.gangs.set_owner(G, facts_of(G, dict(GANG), uid="uid-other"))
    world.pods(*pods(2, 4, node="n2"))
    world.settle()
    assert world.conditions == [SCHEDULED] * 2


OTHER: Final = {"type": "DisruptionTarget", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "t"}


def a_server(version: str, **status: Any) -> tuple[FakeKube, str]:  # noqa: ANN401 - whatever a status can have
    kube = FakeKube()
    folder = f"/apis/scheduling.k8s.io/{version}/namespaces/ns/podgroups"
    kube.put(folder, {"metadata": {"name": "g", "uid": "uid-g", "generation": 3}, "spec": GANG, "status": status})
    return kube, f"{folder}/g"


def effect(uid: str = "uid-g", said: tuple[str, str, str, str] = NO_ROOM) -> PatchNativeGroup:
    return PatchNativeGroup("ns", "g", uid, GroupCondition(*said[1:]), 86_400_000)


@pytest.mark.parametrize(
    ("version", "kind"), [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")]
)
async def test_the_type_is_that_of_the_version_and_conditions_of_others_stay(version: str, kind: str) -> None:
    kube, path = a_server(version, conditions=[OTHER])
    await write_condition(kube, effect())
    assert kube.object(path)["status"]["conditions"] == [
        OTHER,
        {
            "type": kind,
            "status": "False",
            "reason": "Unschedulable",
            "message": NO_ROOM[3],
            "lastTransitionTime": "1970-01-02T00:00:00Z",
            "observedGeneration": 3,
        },
    ]


@pytest.mark.parametrize(
    ("own", "uid"),
    [
        ({"status": "True", "reason": "Scheduled"}, "uid-g"),
        ({"status": "False", "reason": "Unschedulable", "message": NO_ROOM[3].replace("3", "1")}, "uid-g"),
        ({"status": "False", "reason": "Unschedulable", "message": "other"}, "uid-of-another"),
    ],
    ids=["scheduled", "numbers alone", "another group"],
)
async def test_what_is_known_or_over_is_not_written(own: dict[str, str], uid: str) -> None:
    kube, path = a_server("v1alpha2", conditions=[{"type": "PodGroupScheduled", **own}])
    await write_condition(kube, effect(uid))
    assert [call.method for call in kube.calls if call.method == "PATCH"] == []
    assert kube.object(path)["status"]["conditions"] == [{"type": "PodGroupScheduled", **own}]


async def test_another_reason_keeps_the_time_of_the_transition() -> None:
    own = {"status": "False", "reason": "SchedulerError", "message": "x", "lastTransitionTime": "then"}
    kube, path = a_server("v1alpha2", conditions=[{"type": "PodGroupScheduled", **own}])
    await write_condition(kube, effect())
    (found,) = kube.object(path)["status"]["conditions"]
    assert (found["reason"], found["lastTransitionTime"]) == ("Unschedulable", "then")


async def test_a_status_that_changes_meanwhile_is_read_again_and_a_group_that_goes_is_left() -> None:
    kube, _ = a_server("v1alpha2")
    kube.fail(RefusedError("changed", status=409, cause="Conflict"), method="PATCH")
    with pytest.raises(TransientError):
        await write_condition(kube, effect())
    kube.fail(RefusedError("gone", status=404, cause="NotFound"), method="PATCH")
    await write_condition(kube, effect())
    await write_condition(FakeKube(), effect())
