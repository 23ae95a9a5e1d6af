"""Whether a PodGroup that appears, has another name or is made again is the same gang."""

from collections.abc import Callable

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.services.inventory.podgroups.capacity import Capacity
from tests.support.gang_world import CHIPS, GangWorld, a_group, a_pod, facts_of, members, running

TRAIN = ("example.com/v1", "Thing", "train", "train-1")
OTHER = ("example.com/v1", "Thing", "train", "train-2")
SET = ("apps/v1", "StatefulSet", "web", "set-1")
ALONE = {"scheduling.volcano.sh/group-min-member": "1"}


def answer(world: GangWorld, spec: dict[str, object]) -> None:
    """Read every owner that is wanted."""
    while world.looks:
        key = world.looks.pop()
        world.gangs.set_owner(key, facts_of(key, dict(spec)))
        world.settle()


def run_all(world: GangWorld, *pods: Pod) -> None:
    """Place and bind every request; ``pods`` are what they look like then."""
    for name in world.requests:
        world.verdict(name)
        world.status(name, "placed")
    world.settle()
    world.pods(*pods)
    for name in world.requests:
        world.outcome(name)
        world.status(name, "running")
    world.settle()


def one_modification(_: GangWorld) -> None:
    """The watch shows the deletion and the creation as one event."""


def gone_between(world: GangWorld) -> None:
    world.gangs.drop_group("ns", "pg")


def gone_and_settled(world: GangWorld) -> None:
    world.gangs.drop_group("ns", "pg")
    world.settle(after_s=1)


@pytest.mark.parametrize("between", [one_modification, gone_between, gone_and_settled])
@pytest.mark.parametrize("is_pod_first", [True, False])
def test_a_pod_that_is_made_again_joins_the_others_under_a_podgroup_that_is_made_again(
    between: Callable[[GangWorld], None], *, is_pod_first: bool
) -> None:
    """Volcano's RestartPod and RestartTask: three of four pods run on."""
    world = running(4, owner=TRAIN)
    (name,) = world.requests
    world.gangs.drop_pod("uid-p-1")
    between(world)
    new = a_pod("p-1", uid="again", group="pg")
    if is_pod_first:
        world.pods(new)
    world.gangs.set_group(a_group("pg", uid="later", least=4, owner=TRAIN))
    world.pods(new)
    world.settle()
    assert world.withdrawn == []
    assert world.members[name].podgroup_uid == "later"
    (again,) = [one for one in world.requests.values() if one.name != name]
    assert (again.min_available, world.ranks(again.name)) == (1, {"p-1": "1"})
    assert again.is_fragile


def test_after_a_restart_the_podgroup_that_is_made_again_is_the_same_gang() -> None:
    world = running(4, owner=TRAIN)
    (name,) = world.requests
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members[name], world.job(name))
    after.gangs.set_group(a_group("pg", uid="later", least=4, owner=TRAIN))
    after.pods(*members(4, node="n1", phase="Running")[1:], a_pod("p-0", uid="again", group="pg"))
    after.status(name, "running")
    after.outcome(name)
    after.settle()
    assert [one.min_available for one in after.published] == [1]
    assert after.withdrawn == []


def test_a_podgroup_that_is_made_again_needs_no_room_for_the_pods_that_run() -> None:
    world = running(4, owner=TRAIN)
    world.gangs.drop_pod("uid-p-1")
    world.gangs.groups.set_capacity(Capacity({CHIPS: 8}, 1_000_000, 1_000_000))
    again = a_group("pg", uid="later", least=4, phase="Pending", owner=TRAIN, resources={CHIPS: "32"})
    world.gangs.set_group(again)
    world.patches.clear()
    world.settle()
    assert [patch.patch["status"]["phase"] for patch in world.patches] == ["Inqueue"]  # type: ignore[index]


def test_a_podgroup_of_another_controller_is_another_gang() -> None:
    world = running(4, owner=TRAIN)
    world.gangs.set_group(a_group("pg", uid="later", least=4, owner=OTHER))
    world.pods(a_pod("p-9", group="pg"))
    world.settle()
    assert "1 of at least 4 pods exists" in [seen.hold for seen in world.members.values()]


def test_a_users_podgroup_that_is_made_again_counts_the_pods_that_run() -> None:
    world = running(4)
    world.gangs.drop_group("ns", "pg")
    world.settle(after_s=2)
    world.patches.clear()
    world.gangs.set_group(a_group("pg", uid="later", least=4, phase=""))
    world.settle()
    assert [patch.patch["status"]["phase"] for patch in world.patches] == ["Running"]  # type: ignore[index]
    assert world.withdrawn == []


def test_a_users_podgroup_is_another_gang_when_pods_of_another_controller_come() -> None:
    """A Job and its PodGroup are deleted and applied again: the pods of the first run a moment longer."""
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(*members(2, owner=TRAIN))
    world.settle()
    run_all(world, *members(2, owner=TRAIN, node="n1", phase="Running"))
    world.gangs.set_group(a_group("pg", uid="later", least=2))
    world.settle()
    world.pods(a_pod("q-0", group="pg", owner=OTHER))
    world.settle()
    assert len(world.published) == 1
    assert "1 of at least 2 pods exists" in [seen.hold for seen in world.members.values()]
    world.pods(a_pod("q-1", group="pg", owner=OTHER))
    world.settle()
    assert [one.min_available for one in world.published] == [2, 2]


def web(index: int, group: str = "", *, node: str = "", more: dict[str, str] | None = None) -> Pod:
    phase = "Running" if node else "Pending"
    return a_pod(f"web-{index}", group=group, owner=SET, node=node, phase=phase, annotations=more)


def bound_before_named(count: int = 2) -> GangWorld:
    """Pods of a StatefulSet that run before the controller of PodGroups has seen them."""
    world = GangWorld()
    world.pods(*(web(index) for index in range(count)))
    world.settle()
    answer(world, {"replicas": count, "podManagementPolicy": "Parallel"})
    ranks = {"hccl/rankIndex": ""}
    run_all(world, *(web(index, node="n1", more=ranks | {"hccl/rankIndex": str(index)}) for index in range(count)))
    return world


@pytest.mark.parametrize("is_named", [True, False])
def test_pods_that_ran_before_their_podgroup_appeared_are_of_it(*, is_named: bool) -> None:
    world = bound_before_named()
    world.gangs.set_group(a_group("podgroup-set-1", least=3, owner=SET))
    if is_named:
        world.pods(*(web(index, "podgroup-set-1", node="n1") for index in range(2)))
    world.pods(web(2, "podgroup-set-1"))
    world.settle()
    answer(world, {"replicas": 3, "podManagementPolicy": "Parallel"})
    assert world.withdrawn == []
    assert [one.min_available for one in world.published] == [2, 1]
    assert world.ranks(world.published[-1].name) == {"web-2": "2"}
    assert {seen.podgroup for seen in world.members.values()} == {"podgroup-set-1"}


def test_a_pod_without_a_name_joins_the_podgroup_of_its_controller() -> None:
    world = bound_before_named()
    world.gangs.set_group(a_group("podgroup-set-1", least=3, owner=SET))
    world.pods(web(2))
    world.settle()
    answer(world, {"replicas": 3, "podManagementPolicy": "Parallel"})
    assert [one.min_available for one in world.published] == [2, 1]


def test_pods_count_on_when_their_podgroup_goes_and_new_pods_name_none() -> None:
    """The controller of PodGroups is taken away, or makes the PodGroup only when it has seen the pod."""
    world = bound_before_named()
    world.gangs.set_group(a_group("podgroup-set-1", least=3, owner=SET))
    world.pods(*(web(index, "podgroup-set-1", node="n1") for index in range(2)))
    world.settle()
    answer(world, {"replicas": 2, "podManagementPolicy": "Parallel"})
    world.gangs.drop_group("ns", "podgroup-set-1")
    world.settle(after_s=1)
    world.pods(web(2))
    world.settle()
    answer(world, {"replicas": 3, "podManagementPolicy": "Parallel"})
    assert world.withdrawn == []
    assert [one.min_available for one in world.published] == [2, 1]


def test_a_podgroup_that_has_another_name_is_the_same_gang() -> None:
    world = running(4, owner=TRAIN)
    world.gangs.drop_group("ns", "pg")
    world.gangs.set_group(a_group("other-name", least=4, owner=TRAIN))
    world.gangs.drop_pod("uid-p-1")
    world.pods(a_pod("p-1", uid="again", group="other-name"))
    world.settle()
    assert world.withdrawn == []
    assert [one.min_available for one in world.published] == [4, 1]


def test_two_podgroups_of_one_controller_are_two_gangs() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("a", least=2, owner=TRAIN))
    world.gangs.set_group(a_group("b", least=2, owner=TRAIN))
    world.pods(*(a_pod(f"a-{index}", group="a", owner=TRAIN) for index in range(2)))
    world.settle()
    run_all(world, *(a_pod(f"a-{index}", group="a", owner=TRAIN, node="n1", phase="Running") for index in range(2)))
    world.pods(a_pod("b-0", group="b", owner=TRAIN))
    world.settle()
    assert [one.min_available for one in world.published] == [2]
    assert "1 of at least 2 pods exists" in [seen.hold for seen in world.members.values()]


def test_pods_that_ran_alone_count_for_the_podgroup_that_names_them_later() -> None:
    world = GangWorld()
    world.pods(*(a_pod(f"p-{index}") for index in range(3)))
    world.settle()
    run_all(world, *(a_pod(f"p-{index}", node="n1", phase="Running") for index in range(3)))
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*members(3, node="n1", phase="Running"), a_pod("p-3", group="pg"))
    world.settle()
    assert world.withdrawn == []
    assert [one.min_available for one in world.published] == [1, 1, 1, 1]


def test_a_waiting_request_ends_while_its_podgroup_is_away_and_keeps_its_age() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=TRAIN))
    world.pods(*members(2))
    world.settle()
    (name,) = world.requests
    world.verdict(name, accepted_seq=7)
    world.status(name, "waiting")
    world.gangs.drop_group("ns", "pg")
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["PodGroup pg was deleted"]
    world.gangs.set_group(a_group("pg", uid="later", least=2, owner=TRAIN))
    world.settle()
    assert [one.since_seq for one in world.published] == [0, 7]


def test_a_pod_joins_the_podgroup_that_is_made_for_it_while_it_waits() -> None:
    """As Volcano's controller makes one for each pod without a controller."""
    world = GangWorld()
    world.pods(a_pod("alone"))
    world.settle()
    world.gangs.set_group(a_group("pg", least=1, owner=("v1", "Pod", "alone", "uid-alone")))
    world.settle()
    assert world.standing("pod.alone") == {0: "alone"}


NEW_SET = ("apps/v1", "StatefulSet", "web", "set-2")
REPLICAS = ("apps/v1", "ReplicaSet", "web-7f", "replicas-2")


@pytest.mark.parametrize("adopter", [NEW_SET, REPLICAS], ids=["made again", "of another kind"])
@pytest.mark.parametrize("adopted", [3, 2])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_running_pods_that_another_controller_adopts_count_for_it(
    adopter: tuple[str, str, str, str], adopted: int, *, is_grouped: bool
) -> None:
    """A StatefulSet is deleted with ``--cascade=orphan`` and made again, as its volume claims can be changed."""
    world = GangWorld()
    spec = {"replicas": 3, "podManagementPolicy": "Parallel"}
    world.pods(*(a_pod(f"web-{index}", owner=SET) for index in range(3)))
    world.settle()
    answer(world, spec)
    run_all(world, *(a_pod(f"web-{index}", owner=SET, node=f"n{index}", phase="Running") for index in range(3)))
    before = set(world.requests)
    world.pods(*(a_pod(f"web-{index}", node=f"n{index}", phase="Running") for index in range(3)))
    world.settle(after_s=60)
    for index in range(adopted):
        world.pods(a_pod(f"web-{index}", owner=adopter, node=f"n{index}", phase="Running"))
        world.settle()
    if is_grouped:
        world.gangs.set_group(a_group("pg", least=1, owner=adopter))
        world.settle()
    world.pods(a_pod("web-3", owner=adopter))
    world.settle()
    answer(world, spec | {"replicas": 3})
    world.settle(after_s=1)
    answer(world, spec | {"replicas": 4})
    (name,) = set(world.requests) - before
    assert [task.replicas for task in world.requests[name].tasks] == [1]
    assert world.withdrawn == []


def test_running_pods_that_a_controller_adopts_keep_their_ranks_when_one_is_made_again() -> None:
    world = GangWorld()
    spec = {"replicas": 2, "podManagementPolicy": "Parallel"}
    world.pods(*(a_pod(f"web-{index}", owner=SET) for index in range(2)))
    world.settle()
    answer(world, spec)
    run_all(world, *(a_pod(f"web-{index}", owner=SET, node=f"n{index}", phase="Running") for index in range(2)))
    (first,) = world.requests
    for index in range(2):
        world.pods(a_pod(f"web-{index}", owner=NEW_SET, node=f"n{index}", phase="Running"))
    world.settle()
    world.gangs.drop_pod("uid-web-0")
    world.pods(a_pod("web-0", uid="second", owner=NEW_SET))
    world.settle()
    answer(world, spec)
    (second,) = set(world.requests) - {first}
    assert world.ranks(second) == {"web-0": "0"}
    assert world.withdrawn == []
