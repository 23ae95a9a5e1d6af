"""Backup pods of a hot switch: bound beside the pods of their ranks, they stay when these are deleted."""

import dataclasses

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.schemas.fault_facts import BackupPod
from berth.schemas.ledger import Eviction, Release
from berth.schemas.recovery import Recovery
from berth.services.binder.cluster import Gang, Leave, NotYetError, gang_of
from berth.services.binder.recoveries.recovery_work import leaves_of
from tests.support.binder_world import PODS, World, made, uid_of
from tests.support.kube_binder import a_gang, a_placement, a_pod, members_of
from tests.unit.services.binder.test_recovery_work import CAUSE, KEY, History, places, seen


@pytest.fixture(params=[False, True], ids=["same", "restarted"])
def again(request: pytest.FixtureRequest) -> bool:
    """Whether the binder is restarted before each look."""
    return bool(request.param)


def backed_up(history: History, rank: int = 1, node: str = "n5", uid: str = "hot") -> None:
    """The backup pod of a rank gets a place."""
    found = Recovery(
        "ns", "job", "u", 1, history.attempt.holding.step + 1, "SubHealthFault", CAUSE, "pod", "backup", [rank], [rank],
        5, placement=places(node), backups=[uid],
    )  # fmt: skip
    assert history.round(recoveries=[found]) == [KEY]


def to_bind(history: History) -> Gang:
    return gang_of(history.attempt, to_bind=history.work.to_bind(history.attempt))


def test_a_backup_pod_is_bound_at_its_place_and_nothing_is_deleted(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    found = seen(history, again)
    assert found.verb() == "recover"
    assert leaves_of(found.attempt, 10) == {}
    history.outcome(step=1)
    found = seen(history, again)
    assert found.verb() == "bind"
    gang = to_bind(found)
    assert (gang.ranks(), gang.backups, gang.steps, gang.recovers) == ([1], {1: "hot"}, {1: 1}, True)
    assert gang.placement.names() == ["n0", "n5", "n2"]
    assert found.work.open_ranks(found.attempt) == [], "the pod of its rank runs"
    history.outcome(step=1, done=1)
    assert seen(history, again).verb() is None


def test_the_pod_beside_it_is_deleted_alone(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    history.outcome(step=1, done=1)
    history.recover(1)
    found = seen(history, again)
    assert leaves_of(found.attempt, 10) == {1: Leave(1, "n1", at_once=True, reason=CAUSE)}
    history.outcome(step=2, done=1)
    history.release(1)
    found = seen(history, again)
    assert found.attempt.placement.names() == ["n0", "n5", "n2"]
    assert to_bind(found).ranks() == [], "it is bound"


def test_one_that_is_not_bound_yet_is_bound_while_the_pod_beside_it_leaves_and_after(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    history.recover(1)
    history.outcome(step=2)
    gang = to_bind(seen(history, again))
    assert (gang.ranks(), gang.backups) == ([1], {1: "hot"})
    history.release(1)
    gang = to_bind(seen(history, again))
    assert (gang.ranks(), gang.backups, gang.placement.names()) == ([1], {}, ["n0", "n5", "n2"])


def test_one_that_is_gone_is_not_bound(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    history.outcome(step=1)
    history.round(releases=[Release("u", 1, "backup", ranks=[1])])
    found = seen(history, again)
    assert to_bind(found).ranks() == []
    assert found.attempt.placement.names() == ["n0", "n1", "n2"]


def test_one_goes_with_its_attempt(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    history.round(evictions=[Eviction("u", 1, "cancelled")])
    found = seen(history, again)
    assert found.verb() == "evict"
    gang = gang_of(found.attempt)
    assert (gang.backups, gang.placement.names()) == ({1: "hot"}, ["n0", "n1", "n2"])


async def switching() -> tuple[World, Gang]:
    """A gang that is bound, and a backup pod beside rank 1."""
    world = await made(one_at_a_time=False)
    gang = a_gang("job", ["n0", "n1"], [(0,), (0,)])
    world.pods(gang, "p0", "p1")
    assert (await world.cluster.bind(gang)).bound == 2
    return world, gang


def tell_backup(world: World, gang: Gang, uid: str, name: str = "p1-hot") -> None:
    rows = [(rank, f"p{rank}", uid_of(world, f"p{rank}")) for rank in range(2)]
    fact = members_of(gang, rows)
    world.cluster.take_members(msgspec.structs.replace(fact, backups=[BackupPod(1, name, uid)]))


def beside(gang: Gang, uid: str, *, todo: tuple[int, ...] | None = (1,)) -> Gang:
    placement = a_placement(["n0", "n2"], [(0,), (0,)]) if todo is not None else gang.placement
    steps = {1: 1} if todo is not None else {}
    return Gang(
        gang.namespace, gang.name, gang.uid, 1, placement, step=1, steps=steps, todo=todo, recovers=True,
        backups={1: uid},
    )  # fmt: skip


async def test_the_pod_with_exactly_this_uid_is_bound_and_no_other() -> None:
    world, gang = await switching()
    first = world.kube.put(PODS, a_pod("p1-hot"))["metadata"]["uid"]
    with pytest.raises(NotYetError):
        await world.cluster.bind(beside(gang, first))
    tell_backup(world, gang, "another")
    with pytest.raises(NotYetError):
        await world.cluster.bind(beside(gang, first))
    assert world.node_of("p1-hot") == ""
    tell_backup(world, gang, first)
    result = await world.cluster.bind(beside(gang, first))
    assert (result.failures, result.waiting) == ([], ())
    assert (world.node_of("p1"), world.node_of("p1-hot")) == ("n1", "n2")
    notes = world.annotations("p1-hot")
    assert (notes["berth/rank"], notes["berth/step"], notes["berth/uid"]) == ("1", "1", gang.uid)


async def test_the_end_of_the_attempt_deletes_both_pods_of_the_rank() -> None:
    world, gang = await switching()
    uid = world.kube.put(PODS, a_pod("p1-hot"))["metadata"]["uid"]
    tell_backup(world, gang, uid)
    await world.cluster.bind(beside(gang, uid))
    with pytest.raises(NotYetError):  # facts do not show that the pods end
        await world.cluster.evict(beside(gang, uid, todo=None), reason="cancelled")
    deleted = [call.path.removeprefix(f"{PODS}/") for call in world.kube.calls if call.method == "DELETE"]
    assert sorted(deleted) == ["p0", "p1", "p1-hot"]


async def test_the_deletion_of_the_old_pod_keeps_its_backup() -> None:
    world, gang = await switching()
    uid = world.kube.put(PODS, a_pod("p1-hot"))["metadata"]["uid"]
    tell_backup(world, gang, uid)
    await world.cluster.bind(beside(gang, uid))
    with pytest.raises(NotYetError):  # facts do not show that it ends
        await world.cluster.remove(gang, {1: Leave(1, "n1", at_once=True, reason=CAUSE)})
    assert sorted(pod["metadata"]["name"] for pod in world.kube.objects(PODS)) == ["p0", "p1-hot"]


async def test_the_failure_of_a_backup_pod_is_no_failure_of_its_rank() -> None:
    history = History()
    backed_up(history)
    history.outcome(step=1)
    attempt = history.attempt
    attempt.left_backups[1] = 1
    assert history.work.to_bind(attempt) == []
    assert history.verb() == "bind", "nothing is left to be bound: the step is carried out"


def test_another_place_of_a_backup_pod_takes_the_place_of_the_first(again: bool) -> None:  # noqa: FBT001
    history = History()
    backed_up(history)
    history.outcome(step=1)
    backed_up(history, node="n6")
    found = seen(history, again)
    assert leaves_of(found.attempt, 10) == {}, "the pod of the rank stays"
    history.outcome(step=2)
    gang = to_bind(seen(history, again))
    assert (gang.ranks(), gang.backups, gang.steps) == ([1], {1: "hot"}, {1: 2})
    assert gang.placement.names() == ["n0", "n6", "n2"]


def test_a_failure_at_the_first_place_does_not_count_at_the_second() -> None:
    history = History()
    backed_up(history)
    history.outcome(step=1)
    history.attempt.left_backups[1] = 1
    backed_up(history, node="n6")
    history.outcome(step=2)
    assert to_bind(history).ranks() == [1]


def test_a_backup_pod_with_another_uid_gets_no_place_before_that_of_the_first_is_free() -> None:
    history = History()
    backed_up(history)
    with pytest.raises(InvariantError, match="gets places for ranks whose backup pods have some"):
        backed_up(history, node="n6", uid="another")


async def test_one_that_was_bound_when_its_place_was_given_up_is_deleted_and_its_rank_is_not() -> None:
    world, gang = await switching()
    uid = world.kube.put(PODS, a_pod("p1-hot"))["metadata"]["uid"]
    tell_backup(world, gang, uid)
    await world.cluster.bind(beside(gang, uid))
    assert world.node_of("p1-hot") == "n2"
    other = beside(gang, uid)
    placement = a_placement(["n0", "n1"], [(0,), (1,)])
    with pytest.raises(NotYetError):
        await world.cluster.bind(dataclasses.replace(other, placement=placement, step=2, steps={1: 2}))
    deleted = [call for call in world.kube.calls if call.method == "DELETE"]
    assert [call.path.removeprefix(f"{PODS}/") for call in deleted] == ["p1-hot"]
    assert sorted(pod["metadata"]["name"] for pod in world.kube.objects(PODS)) == ["p0", "p1"]


async def test_one_that_is_bound_at_its_place_is_bound_once_more_without_harm() -> None:
    world, gang = await switching()
    uid = world.kube.put(PODS, a_pod("p1-hot"))["metadata"]["uid"]
    tell_backup(world, gang, uid)
    for _ in range(2):
        assert (await world.cluster.bind(beside(gang, uid))).failures == []
    assert world.node_of("p1-hot") == "n2"
    assert not [call for call in world.kube.calls if call.method == "DELETE"]
