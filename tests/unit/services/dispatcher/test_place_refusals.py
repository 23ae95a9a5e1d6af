"""Why pods have no place: as plans said, or as a status said that another dispatcher wrote."""

import msgspec

from berth.core.faults.examination import Unplaced
from berth.schemas.recovery import BackupWaiting, RecoveryStatus
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from berth.services.dispatcher.place_refusals import PlaceRefusals
from tests.support.recovering_job import Recovering

KEY = ("default", "j")
HOT = BackupWaiting(1, "hot", "no leaf")


def status(
    life: Recovering, refusal: str = "no room", *, step: int = 1, backups: tuple[BackupWaiting, ...] = ()
) -> JobStatus:
    recovery = RecoveryStatus(
        step, "pod", "force", "CardUnhealthy", "its chip broke", [1], [1], 0, attempt=1, unplaced=[1], refusal=refusal
    )
    return msgspec.structs.replace(life.status, recovery=recovery, backups=list(backups))


def recovering() -> Recovering:
    """A job of which rank 1 has left and has no place."""
    life = Recovering()
    life.recover(1)
    return life


def test_what_was_read_counts_for_the_step_that_it_is_about() -> None:
    life, known = recovering(), PlaceRefusals()
    known.learn(status(life, backups=(HOT,)), is_newer=True)
    assert known.of(life.world.state, KEY) == {"": "no room", "hot": "no leaf"}
    known.learn(status(life, step=2, backups=(HOT,)), is_newer=True)
    assert known.of(life.world.state, KEY) == {"hot": "no leaf"}, "it recovers with another step"


def test_a_newer_status_replaces_what_an_older_one_said() -> None:
    life, known = recovering(), PlaceRefusals()
    assert known.learn(status(life, backups=(HOT,)), is_newer=True)
    assert known.learn(status(life, "no leaf"), is_newer=True)
    assert known.of(life.world.state, KEY) == {"": "no leaf"}
    assert known.learn(life.status, is_newer=True)
    assert known.of(life.world.state, KEY) == {}


def test_an_older_status_says_only_what_is_not_known() -> None:
    life, known = recovering(), PlaceRefusals()
    assert known.note([Unplaced(*KEY, Refusal("no-topology"))]) == [KEY]
    own = known.of(life.world.state, KEY)
    assert own[""] != "no room"
    assert known.learn(status(life, backups=(HOT,)), is_newer=False)
    assert known.of(life.world.state, KEY) == own | {"hot": "no leaf"}
    assert not known.learn(status(life, backups=(HOT,)), is_newer=False)


def test_only_another_kind_of_reason_is_news() -> None:
    life, known = recovering(), PlaceRefusals()
    found = [Unplaced(*KEY, Refusal("no-room", pods_need=1)), Unplaced(*KEY, Refusal("no-room"), "hot")]
    assert known.note(found) == [KEY, KEY]
    assert known.note([Unplaced(*KEY, Refusal("no-room", pods_need=2))]) == []
    assert known.note([Unplaced(*KEY, Refusal("no-leaf"), "hot")]) == [KEY]
    assert known.of(life.world.state, KEY).keys() == {"", "hot"}


def test_what_does_not_wait_any_more_is_forgotten() -> None:
    life, known = recovering(), PlaceRefusals()
    known.learn(status(life, backups=(HOT,)), is_newer=True)
    known.settle(KEY, status(life))
    assert known.of(life.world.state, KEY) == {"": "no room"}
    known.learn(status(life, backups=(HOT,)), is_newer=True)
    known.settle(KEY, msgspec.structs.replace(life.status, recovery=None, backups=[HOT]))
    assert known.of(life.world.state, KEY) == {"hot": "no leaf"}
    known.settle(KEY, None)
    assert known.of(life.world.state, KEY) == {}
