"""Notices about backup pods of a hot switch that have no place."""

from collections.abc import Sequence

import msgspec

from berth.schemas.fault_facts import BackupPod
from berth.schemas.recovery import BackupWaiting
from berth.schemas.status import JobStatus
from tests.support.kube_binder import members_of
from tests.unit.services.binder.test_notices import GANG, PODS, Book, recovering, status, waiting


def with_backups(*backups: BackupWaiting, ranks: Sequence[int] = ()) -> JobStatus:
    found = recovering(*ranks) if ranks else status("running")
    return msgspec.structs.replace(found, backups=list(backups))


def test_a_backup_pod_that_finds_no_place_gets_a_condition_and_the_others_do_not() -> None:
    book = Book()
    book.say("running")
    book.written()
    told = with_backups(BackupWaiting(1, "hot", "no room beside it"))
    book.notices.take_status(told, 0)
    assert book.written() == [], "no fact has named it yet"
    beside = msgspec.structs.replace(members_of(GANG, PODS), backups=[BackupPod(1, "p1-hot", "hot")])
    book.notices.take_members(beside, 1)
    words = "the backup pod of rank 1 waits for a place: no room beside it"
    assert book.written() == [("", "unplaced", words), ("p1-hot", "unplaced", words)]
    book.notices.take_members(beside, 2)
    book.notices.take_status(told, 3)
    assert book.written() == []
    other = msgspec.structs.replace(beside, backups=[BackupPod(1, "p1-hot-2", "hot-2")])
    book.notices.take_members(other, 4)
    assert book.written() == [], "nothing is said of that one yet"
    book.notices.take_status(with_backups(BackupWaiting(1, "hot-2", "no room beside it")), 5)
    assert book.written() == [("p1-hot-2", "unplaced", words)]
    book.notices.take_status(status("running"), 6)
    assert book.written() == [("", "placed", "placed 2 pods on 2 nodes")]


def test_new_pods_and_backup_pods_that_wait_are_told_in_one_sentence() -> None:
    book = Book()
    book.notices.take_members(
        msgspec.structs.replace(members_of(GANG, PODS), backups=[BackupPod(1, "p1-hot", "hot")]), 0
    )
    book.notices.take_replacements(waiting(0), 0)
    book.notices.take_status(with_backups(BackupWaiting(1, "hot", "no leaf"), ranks=[0]), 0)
    words = "the new pod of rank 0 waits for a place: no room; the backup pod of rank 1 waits for a place: no leaf"
    assert book.written() == [("", "unplaced", words), ("p0", "unplaced", words), ("p1-hot", "unplaced", words)]
