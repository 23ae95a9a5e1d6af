"""Ranks that pods state themselves."""

from typing import Any

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of
from tests.unit.services.inventory.gangs.test_changed_owners import runs


def with_rank(name: str, rank: str, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
    return a_pod(name, group="pg", annotations={"hccl/rankIndex": rank}, **more)


def test_pods_of_a_gang_that_state_the_same_rank_are_refused() -> None:
    """Case a/33."""
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3))
    world.pods(*(with_rank(f"r-{index}", "0") for index in range(3)))
    world.settle()
    assert world.requests == {}
    assert world.hold("podgroup.pg") == (
        "1 of at least 3 pods exists; pod r-1 has hccl/rankIndex 0, the rank of pod r-0: expected a rank that no other "
        "pod of the gang has, such as 1, and 1 more"
    )


@pytest.mark.parametrize("rank", ["one", "-1", "", "1.0", "\uff11"])
def test_a_pod_that_states_no_rank_where_one_is_expected_is_refused(rank: str) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(with_rank("r-0", "0"), with_rank("r-1", rank))
    world.settle()
    assert world.requests == {}
    assert world.hold("podgroup.pg") == (
        f"1 of at least 2 pods exists; pod r-1 has hccl/rankIndex {rank!r}: expected a whole number, the rank of the pod"
    )


def test_a_pod_that_states_the_rank_of_a_running_one_is_refused_and_the_others_start() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(with_rank("r-0", "0"), with_rank("r-1", "1"))
    world.settle()
    runs(world, "podgroup.pg", [with_rank(f"r-{rank}", str(rank), node="n", phase="Running") for rank in range(2)])
    world.pods(with_rank("r-2", "1"), with_rank("r-3", "3"))
    world.settle()
    (hold,) = [seen.hold for seen in world.members.values() if seen.hold]
    assert hold == (
        "pod r-2 has hccl/rankIndex 1, the rank of pod r-1: expected a rank that no other pod of the gang has, such as 2"
    )
    assert [request.min_available for request in world.requests.values()] == [2, 1]


def test_a_pod_that_states_the_rank_of_one_that_runs_without_a_request_is_refused() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1))
    world.pods(with_rank("r-0", "0", node="n", phase="Running"), with_rank("r-1", "0"))
    world.settle()
    assert world.requests == {}
    assert "pod r-1 has hccl/rankIndex 0, the rank of pod r-0" in "".join(seen.hold for seen in world.members.values())


def test_pods_without_chips_have_no_rank_that_could_be_the_same() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(with_rank("r-0", "0", chips=0), with_rank("r-1", "0"))
    world.settle()
    assert len(world.requests) == 1


def test_a_rank_is_free_again_when_its_pod_ends() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1))
    world.pods(with_rank("r-0", "0"), with_rank("r-1", "0"))
    world.settle()
    assert len(world.requests) == 1
    world.gangs.drop_pod("uid-r-0")
    world.settle()
    assert [seen.hold for seen in world.members.values() if seen.hold] == []


def of_a_job(world: GangWorld, *ranks: str, sizes: tuple[int, ...]) -> None:
    """Let pods of a Volcano Job, one of each task, state ranks."""
    key, owner = OwnerKey("VolcanoJob", "ns", "llm"), ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
    world.gangs.set_group(a_group("pg", least=len(ranks), owner=owner))
    for at, rank in enumerate(ranks):
        marks = {"volcano.sh/task-spec": f"t{at}", "volcano.sh/task-index": "0"}
        world.pods(a_pod(f"llm-{at}", owner=owner, group="pg", annotations=marks | {"hccl/rankIndex": rank}))
    world.settle()
    tasks = [{"name": f"t{at}", "replicas": size} for at, size in enumerate(sizes)]
    world.gangs.set_owner(key, facts_of(key, {"tasks": tasks}, uid="vc-1"))
    world.settle()


def test_a_pod_that_states_a_rank_which_its_job_does_not_have_is_refused() -> None:
    world = GangWorld()
    of_a_job(world, "0", "2", sizes=(1, 1))
    assert world.requests == {}
    assert world.hold("vcjob.llm") == (
        "1 of at least 2 pods exists; pod llm-1 has hccl/rankIndex 2: expected a rank below 2, its gang has no more pods"
    )


def test_a_job_that_has_grown_has_more_ranks() -> None:
    world = GangWorld()
    of_a_job(world, "0", "2", sizes=(1, 1))
    of_a_job(world, "0", "2", sizes=(1, 2))
    assert [request.min_available for request in world.requests.values()] == [2]
