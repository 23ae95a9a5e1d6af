"""Nodes that do not take a pod any more that was decided for them: nothing is bound there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from berth.runtime.errors import TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.constraints import Expression, Term, Toleration
from berth.schemas.facts import RankFailure
from berth.schemas.intake import JobRequest, Task
from berth.services.binder.cluster import BindResult, Gang, NotYetError
from berth.services.binder.node_cards import NodeCards, NodeLean, shapes_of_tasks
from tests.support.binder_world import World, bound, made
from tests.support.cells import a_job
from tests.support.kube_binder import a_gang, a_node

NODES = "/api/v1/nodes"
AT = "2026-11-28T12:00:00Z"
AT_MS = 1_795_867_200_000
SELECTOR = {"pool": "a"}


def node(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # parts of an object
    """A node of pool a."""
    found = a_node("n0")
    return {
        "metadata": {**found["metadata"], "labels": changes.get("labels", SELECTOR)},
        "spec": changes.get("spec", {}),
        "status": {**found["status"], "conditions": [{"type": "Ready", **changes.get("ready", {"status": "True"})}]},
    }


def a_request(*tasks: Task) -> JobRequest:
    """A job that selects no nodes but those that its tasks do."""
    return msgspec.structs.replace(a_job("j", tasks=list(tasks)), node_selector={})


def misfit(found: Mapping[str, Any], *, now_ms: int = AT_MS, **task: Any) -> str:  # noqa: ANN401  # fields of a task
    cards = NodeCards()
    cards.replace([msgspec.convert(found, NodeLean)])
    (_, shape), *_ = shapes_of_tasks(a_request(Task("worker", 1, 1, node_selector=SELECTOR, **task)))
    return cards.misfit("n0", shape, now_ms)


CORDON = {"unschedulable": True}
TAINT = {"taints": [{"key": "repair", "value": "yes", "effect": "NoSchedule"}]}
GONE = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}
SOFT = {"taints": [{"key": "repair", "effect": "PreferNoSchedule"}]}
NAMED = [Term((Expression("kubernetes.io/hostname", "In", ("n1",)),))]


@pytest.mark.parametrize(
    ("found", "task", "why"),
    [
        (node(), {}, ""),
        (node(spec=CORDON), {}, "node n0 was cordoned"),
        (node(spec=CORDON), {"tolerations": [Toleration(operator="Exists")]}, ""),
        (node(spec=TAINT), {}, "node n0 was tainted: the pod does not tolerate repair=yes:NoSchedule"),
        (node(spec=TAINT), {"tolerations": [Toleration("repair", "Equal", "yes", "NoSchedule")]}, ""),
        (node(spec=SOFT), {}, ""),
        (node(spec=GONE), {}, ""),
        (node(labels={"pool": "b"}), {}, "labels of node n0 have changed: it does not match what the pod selects"),
        (node(), {"affinity": NAMED}, "labels of node n0 have changed: it does not match what the pod selects"),
    ],
)
def test_a_node_as_it_is_now_is_compared_with_the_pod(found: dict[str, Any], task: dict[str, Any], why: str) -> None:
    assert misfit(found, **task) == why


@pytest.mark.parametrize(
    ("since", "after_ms", "why"),
    [(AT, 29_999, ""), (AT, 30_000, "node n0 has not been ready for 30 s"), ("", 0, "node n0 has not been ready")],
)
def test_a_node_may_be_not_ready_for_a_moment(since: str, after_ms: int, why: str) -> None:
    found = node(ready={"status": "Unknown", "lastTransitionTime": since})
    said = misfit(found, now_ms=AT_MS + after_ms)
    assert said.startswith(why) if why else said == ""


def test_of_a_node_that_is_gone_and_of_a_job_that_is_not_known_nothing_is_said() -> None:
    cards = NodeCards()
    assert cards.misfit("n0", None, 0) == ""
    cards.change([("MODIFIED", msgspec.convert(node(spec=CORDON), NodeLean))])
    assert cards.misfit("n0", None, 0) == ""
    (_, shape), *_ = shapes_of_tasks(a_request(Task("worker", 1, 1)))
    assert cards.misfit("n0", shape, 0) == "node n0 was cordoned"
    cards.change([("DELETED", msgspec.convert(node(), NodeLean))])
    assert cards.misfit("n0", shape, 0) == ""


async def cordoned(world: World, name: str, *, is_cordoned: bool = True) -> None:
    world.kube.put(NODES, {**a_node(name), "spec": {"unschedulable": is_cordoned}})
    await world.sync()


def a_known_gang(*nodes: str) -> Gang:
    gang = a_gang("job", nodes, [(0,)] * len(nodes))
    shapes = shapes_of_tasks(a_request(Task("worker", len(nodes), 1)))
    return dataclasses.replace(gang, shapes=shapes)


async def test_before_the_first_pod_is_bound_all_places_are_given_back() -> None:
    world = await made()
    gang = a_known_gang("n0", "n1")
    world.pods(gang, "p0", "p1")
    await cordoned(world, "n1")
    with pytest.raises(NotYetError, match="node n1 was cordoned"):
        await world.cluster.bind(gang)
    world.clock.advance(1)
    result = await world.cluster.bind(gang)
    assert result.failures[0].reason == "node n1 was cordoned"
    assert (result.bound, result.given_back, len(result.failures)) == (0, True, 2)
    assert (world.bindings(), world.node_of("p0"), world.node_of("p1")) == (0, "", "")
    assert world.told == [("p1", "FailedBinding", "node n1 was cordoned")]


async def test_a_node_that_takes_pods_again_in_time_gets_them() -> None:
    world = await made()
    gang = a_known_gang("n0", "n1")
    world.pods(gang, "p0", "p1")
    await cordoned(world, "n1")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    await cordoned(world, "n1", is_cordoned=False)
    assert await world.cluster.bind(gang) == bound(2)


async def test_after_the_first_pod_was_bound_a_rank_alone_gives_its_place_back() -> None:
    world = await made()
    gang = a_known_gang("n0", "n0")
    world.pods(gang, "p0", "p1")
    with pytest.raises(NotYetError, match="turn on a node"):
        await world.cluster.bind(gang)
    assert world.bindings() == 1
    await cordoned(world, "n0")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    world.clock.advance(1)
    result = await world.cluster.bind(gang)
    assert result == BindResult(1, [RankFailure(1, "node n0 was cordoned")], given_back=True)
    assert (world.bindings(), world.told) == (1, [("p1", "FailedBinding", "node n0 was cordoned")])


async def test_ranks_whose_nodes_take_them_are_bound_before_the_others_give_their_places_back() -> None:
    world = await made()
    gang = a_known_gang("n0", "n1", "n2")
    world.pods(gang, "p0", "p1", "p2")
    for name in ("p1", "p2"):
        world.kube.fail(RefusedError("denied", status=422), method="POST", part=f"{name}/binding", times=2)
    with pytest.raises(TransientError):
        await world.cluster.bind(gang)
    await cordoned(world, "n2")
    with pytest.raises(TransientError):
        await world.cluster.bind(gang)
    world.kube.forgive()
    world.clock.advance(1)
    result = await world.cluster.bind(gang)
    assert result == BindResult(2, [RankFailure(2, "node n2 was cordoned")], given_back=True)
    assert [world.node_of(name) for name in ("p0", "p1", "p2")] == ["n0", "n1", ""]


async def test_ranks_that_recover_fail_alone_and_get_another_place() -> None:
    world = await made()
    gang = a_known_gang("n0", "n1")
    again = dataclasses.replace(gang, recovers=True, step=1, steps={0: 1, 1: 1}, todo=(0, 1))
    world.pods(again, "p0", "p1")
    await cordoned(world, "n1")
    with pytest.raises(NotYetError):
        await world.cluster.bind(again)
    world.clock.advance(1)
    result = await world.cluster.bind(again)
    assert result == BindResult(1, [RankFailure(1, "node n1 was cordoned")])
    assert (world.node_of("p0"), world.node_of("p1")) == ("n0", "")


async def test_pods_that_are_bound_already_are_not_given_back() -> None:
    world = await made()
    gang = a_known_gang("n0", "n1")
    world.pods(gang, "p0", "p1")
    assert await world.cluster.bind(gang) == bound(2)
    await cordoned(world, "n0")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)  # as after an outcome that could not be published
    world.clock.advance(1)
    assert await world.cluster.bind(gang) == bound(2)
    world.cluster.forget(gang.key)
    world.clock.advance(1)
    world.kube.fail(RefusedError("not permitted", status=403), method="GET", part="p0")
    with pytest.raises(NotYetError):
        await world.cluster.bind(gang)
    world.clock.advance(1)
    assert await world.cluster.bind(gang) == bound(2)
