"""Backup pods of a hot switch: they are no requests of their own, and take the rank of the pod beside them."""

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.schemas.columns import unpack
from berth.schemas.fault_facts import BackupPod
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod
from tests.unit.services.inventory.gangs.test_replacements import over, ranked, recovers, running_with_ranks, uids

MARKS = {"inHotSwitchFlow": "true", "podType": "backup", "backupSourcePodName": "p-1", "hccl/rankIndex": "1"}
BACKUP = BackupPod(1, "p-1-hot-0042", "hot")
BOUND = BackupPod(1, "p-1-hot-0042", "hot", is_bound=True)


def a_backup(uid: str = "hot", *, name: str = "p-1-hot-0042", marks: dict[str, str] = MARKS, **more: str) -> Pod:
    return a_pod(name, uid=uid, group="pg", annotations=marks, **more)  # type: ignore[arg-type]  # texts alone


def switching(*pods: Pod) -> GangWorld:
    """A gang of four that runs, and a backup pod."""
    world = running_with_ranks()
    world.pods(*(pods or (a_backup(),)))
    world.settle()
    return world


def backups(world: GangWorld, name: str = BASE) -> list[BackupPod]:
    found = world.replacements.get(name)
    return found.backups if found is not None else []


def beside(world: GangWorld) -> list[BackupPod]:
    """Those that the binder is told beside the pods of ranks."""
    return world.members[BASE].backups


def test_a_backup_pod_is_told_with_its_rank_and_is_no_request_of_its_own() -> None:
    world = switching()
    assert (backups(world), beside(world)) == ([BACKUP], [BACKUP])
    assert uids(world)[1] == "uid-p-1"
    assert list(world.requests) == [BASE]
    assert not [seen.hold for seen in world.members.values() if seen.hold]


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_one_that_is_bound_is_told_until_it_is_gone(phase: str) -> None:
    world = switching()
    world.pods(a_backup(node="n2", phase=phase))
    world.settle()
    assert (backups(world), beside(world)) == ([BOUND], [BACKUP])
    world.gangs.drop_pod("hot")
    world.settle()
    assert (backups(world), beside(world), uids(world)[1]) == ([], [], "uid-p-1")


def test_one_that_terminates_is_there_and_one_that_has_failed_is_not() -> None:
    world = switching()
    world.pods(a_pod("p-1-hot-0042", uid="hot", group="pg", annotations=MARKS, node="n2", deleting=True))
    world.settle()
    assert backups(world) == [BOUND]
    world.pods(a_backup(node="n2", phase="Failed"))
    world.settle()
    assert (backups(world), beside(world)) == ([], [])


def test_it_takes_the_rank_when_the_pod_beside_it_is_gone_and_is_known_without_its_marks() -> None:
    world = switching()
    recovers(world, 1)
    world.pods(a_pod("p-1", group="pg", annotations={"hccl/rankIndex": "1"}, node="n1", deleting=True))
    world.settle()
    assert uids(world)[1] == "uid-p-1", "it is not gone yet"
    world.gangs.drop_pod("uid-p-1")
    world.settle()
    assert (uids(world)[1], backups(world), beside(world)) == ("hot", [BACKUP], [])
    world.pods(a_backup(marks={"hccl/rankIndex": "1"}, node="n2", phase="Running"))
    world.settle()
    assert (uids(world)[1], backups(world), list(world.requests)) == ("hot", [BOUND], [BASE])
    assert unpack(world.replacements[BASE].ranks, 4) == [], "it needs no other place"


def test_a_second_backup_of_a_rank_counts_once_the_first_is_gone() -> None:
    world = switching()
    world.pods(a_backup("hot-2", name="p-1-hot-0043"))
    world.settle()
    assert backups(world) == [BACKUP]
    world.gangs.drop_pod("hot")
    world.settle()
    assert backups(world) == [BackupPod(1, "p-1-hot-0043", "hot-2")]
    assert list(world.requests) == [BASE]


def test_a_backup_of_a_pod_without_a_place_waits_with_the_reason() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*ranked(4), a_backup())
    world.settle()
    assert list(world.requests) == [BASE]
    (hold,) = [seen.hold for seen in world.members.values() if seen.hold]
    assert hold == "pod p-1-hot-0042 is the backup of pod p-1, which has no place of its own"
    assert backups(world) == []


def test_a_backup_whose_source_is_gone_is_a_pod_like_any_other() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    others = [pod for pod in ranked(4) if pod.metadata.name != "p-1"]
    world.pods(*others, a_backup())
    world.settle()
    assert sorted(uids(world)) == ["hot", "uid-p-0", "uid-p-2", "uid-p-3"]


def test_a_restart_knows_a_backup_that_has_lost_its_marks() -> None:
    world = switching()
    pods = ranked(4, node="n1", phase="Running")
    after = over(world, *pods, a_backup(marks={"hccl/rankIndex": "1"}, node="n2", phase="Running"))
    after.settle()
    assert (backups(after), list(after.requests), len(after.published)) == ([BOUND], [BASE], 0)


def test_after_the_end_of_the_job_nothing_of_it_is_told() -> None:
    world = switching()
    world.status(BASE, "cancelled")
    world.gangs.drop_pod("hot")
    for rank in range(4):
        world.gangs.drop_pod(f"uid-p-{rank}")
    world.settle()
    assert backups(world) == []
