"""Owners that a watch shows otherwise are read again, and nothing is requested anew without end because of it."""

import msgspec
import pytest

from berth.formats.kubernetes.workloads.kinds.replica_set import ReplicaSet
from tests.support.gang_world import GangWorld, a_pod
from tests.unit.services.inventory.gangs.test_changed_owners import (
    LEAST,
    NAME,
    REPLICAS,
    SET,
    a_set_that_waits,
    of_set,
    replicas,
    runs,
)


def a_replica_set(least: str, name: str = "d") -> ReplicaSet:
    """As a watch shows it."""
    meta = {"name": name, "namespace": "ns", "uid": "rs-1", "annotations": {LEAST: least}}
    return msgspec.convert({"metadata": meta, "spec": {"replicas": 4}}, ReplicaSet)


def test_an_owner_is_read_again_as_soon_as_a_watch_shows_it_changed() -> None:
    world = a_set_that_waits(4, **{LEAST: "4"})
    for one in (a_replica_set("4"), a_replica_set("2", name="of-nobody")):
        assert not world.gangs.change_owner("ReplicaSet", one)
    world.settle(after_s=1)
    assert world.looks == []
    assert world.gangs.change_owner("ReplicaSet", a_replica_set("2"))
    world.settle()
    assert world.looks == [REPLICAS]
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: "2"}))
    world.settle()
    assert world.requests[NAME].min_available == 2


def test_an_owner_that_changes_while_it_is_read_is_read_once_more() -> None:
    world = a_set_that_waits(4, **{LEAST: "4"})
    assert world.gangs.change_owner("ReplicaSet", a_replica_set("4"), is_gone=True)
    world.settle(after_s=1)
    assert not world.gangs.change_owner("ReplicaSet", a_replica_set("3")), "it is being read"
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: "4"}))
    world.settle()
    assert world.looks == [REPLICAS], "it was read just now"
    world.settle(after_s=1)
    assert world.looks == [REPLICAS] * 2
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: "3"}))
    world.settle()
    assert (len(world.looks), world.requests[NAME].min_available) == (2, 3)


def test_a_watch_that_is_late_leads_to_one_read_of_what_is_known_already() -> None:
    world = a_set_that_waits(4, **{LEAST: "4"})
    for _ in range(2):
        assert world.gangs.replace_owners("ReplicaSet", [a_replica_set("2")])
        world.settle(after_s=1)
        world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: "4"}))
        for _ in range(3):
            world.settle(after_s=1)
    assert world.looks == [REPLICAS] * 2
    assert not world.gangs.replace_owners("ReplicaSet", [a_replica_set("4")])


@pytest.mark.parametrize(("least", "is_fragile"), [("2", False), ("4", True)])
def test_the_minimum_that_a_running_gang_has_now_counts_for_a_lost_rank_that_waits(
    least: str, *, is_fragile: bool
) -> None:
    world = a_set_that_waits(4, **{LEAST: "2" if is_fragile else "4"})
    runs(world, NAME, of_set(0, 4, node="n1", phase="Running"))
    world.verdict(NAME, accepted_seq=7)
    world.gangs.drop_pod("uid-d-3")
    world.pods(a_pod("d-9", owner=SET))
    world.settle(after_s=1)
    world.looks.clear()
    assert world.published[-1].is_fragile != is_fragile
    assert world.gangs.change_owner("ReplicaSet", a_replica_set(least))
    world.settle()
    assert world.looks == [REPLICAS]
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: least}))
    world.settle()
    assert world.published[-1].is_fragile == is_fragile


@pytest.mark.parametrize("order", [1, -1])
def test_pods_that_state_different_minima_are_requested_once_whichever_comes_first(order: int) -> None:
    """As in a rollout: the pod that is first by name counts."""
    world = GangWorld()
    pods = [a_pod(f"d-{index}", owner=SET, annotations={LEAST: least}) for index, least in enumerate("21")]
    world.pods(*pods[::order])
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(2))
    world.settle()
    world.verdict(NAME)
    world.status(NAME, "waiting")
    world.settle()
    assert ([one.min_available for one in world.published], world.withdrawn) == ([2], [])
