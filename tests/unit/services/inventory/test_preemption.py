"""What PodGroups and pods say of preemption, from the API server to requests, facts and Events."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodsSeen
from berth.schemas.intake import CHECKPOINT_AT, JobRequest, Preemption, Task
from berth.schemas.units import rfc3339
from tests.unit.services.inventory.test_service import CONFIG, RESOURCE, Tree, World, a_node, a_pod

PREEMPTABLE = "volcano.sh/preemptable"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"
PODS = "/api/v1/namespaces/team/pods"
MARKS = {"berth__job": "job", "berth__uid": "u", "berth__attempt": "1", "berth__rank": "0"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.bus.ensure_streams()
    made.kube.put("/api/v1/nodes", a_node("a"))
    yield made
    await made.bus.close()


def put_group(world: World, annotations: dict[str, str]) -> None:
    """A PodGroup that is let in."""
    meta = {"name": "pg", "namespace": "team", "annotations": annotations}
    world.kube.put(GROUPS, {"metadata": meta, "spec": {"minMember": 1}, "status": {"phase": "Inqueue"}})


def events(world: World, reason: str) -> list[tuple[str, str, str]]:
    """Kind and name of the object of each Event of a reason, and what it says."""
    found: list[Tree] = [one for one in world.kube.objects("/api/v1/events") if one["reason"] == reason]
    return [(one["involvedObject"]["kind"], one["involvedObject"]["name"], one["message"]) for one in found]


async def test_a_change_of_a_podgroup_is_in_the_request_and_what_has_no_effect_in_an_event(world: World) -> None:
    put_group(world, {})
    world.kube.put(PODS, a_pod("p0", group="pg"))
    async with world.inventory(CONFIG):
        await world.has(world.requests, "a request")
        put_group(world, {PREEMPTABLE: "maybe"})
        await world.has(lambda: events(world, "PreemptionIgnored"), "an Event")
    why = f"annotation {PREEMPTABLE} is 'maybe': expected true or false; it counts as false"
    assert events(world, "PreemptionIgnored") == [("PodGroup", "pg", why)]
    first, second = (request.preemption for request in world.requests())
    assert (first, second) == (None, Preemption(preemptable=False, ignored=[why]))


async def test_a_stamp_is_in_the_fact_of_the_pods_and_a_wrong_one_in_an_event_on_its_object(world: World) -> None:
    request = JobRequest("team", "job", "u", RESOURCE, [Task("t", 1, 2)])
    job = JobSeen("team", "job", "u", "accepted", 1, request=request)
    await world.bus.publish(world.bus.subjects.fact_job("team", "job"), encode(job))
    saved_ms = world.clock.now_ms() // 1000 * 1000
    stamp = {CHECKPOINT_AT.replace("/", "__"): rfc3339(saved_ms)}
    world.kube.put(PODS, a_pod("p0", node="a", phase="Running", group="pg", **MARKS, **stamp))
    put_group(world, {CHECKPOINT_AT: "soon"})
    async with world.inventory(CONFIG):
        await world.has(lambda: world.facts("pod", PodsSeen), "a fact of the pod")
        await world.has(lambda: events(world, "CheckpointIgnored"), "an Event")
    assert [fact.checkpoint_ms for fact in world.facts("pod", PodsSeen)] == [saved_ms]
    ((kind, name, why),) = events(world, "CheckpointIgnored")
    assert (kind, name) == ("PodGroup", "pg")
    assert why.startswith("annotation berth/checkpoint-at is 'soon': expected a time of RFC 3339 such as 2")


@pytest.mark.parametrize("preempt", [False, True])
async def test_with_preemption_the_fact_of_the_pods_names_the_budgets_that_their_end_would_break(
    world: World, *, preempt: bool
) -> None:
    request = JobRequest("team", "job", "u", RESOURCE, [Task("t", 1, 2)])
    job = JobSeen("team", "job", "u", "accepted", 1, request=request)
    await world.bus.publish(world.bus.subjects.fact_job("team", "job"), encode(job))
    budget = {"metadata": {"name": "keep", "namespace": "team"}, "spec": {"selector": {}}}
    world.kube.put("/apis/policy/v1/namespaces/team/poddisruptionbudgets", budget)
    world.kube.put(PODS, a_pod("p0", node="a", phase="Running", **MARKS))
    async with world.inventory(replace(CONFIG, gangs=replace(CONFIG.gangs, preempt=preempt))):
        await world.has(lambda: world.facts("pod", PodsSeen), "a fact of the pod")
    assert [fact.budgets for fact in world.facts("pod", PodsSeen)] == [["team/keep"] if preempt else []]
