"""What a status says of the newest recovery of a job."""

import msgspec
import pytest

from berth.core.explain.job_status import digest
from berth.core.explain.recovery_text import open_words, recovery_words
from berth.schemas.envelope import encode
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus
from tests.support.recovering_job import Recovering


def test_a_job_without_faults_has_no_recovery() -> None:
    assert Recovering().status.recovery is None


def test_ranks_are_open_until_their_new_pods_are_bound() -> None:
    life = Recovering()
    life.recover(0, 2)
    first = life.recovery
    assert (first.step, first.open, first.placed, first.placed_ms, first.ranks) == (1, [0, 2], True, 0, [0, 2])
    assert life.status.sentence == "ranks 0,2 recover from a fault: a chip is unhealthy"
    old = life.status.placement
    life.end(0)
    assert (life.recovery.open, life.recovery.placed_ms) == ([0, 2], 0)
    life.end(2)
    assert (life.recovery.open, life.recovery.placed_ms) == ([0, 2], life.world.state.fold.at_ms)
    assert life.status.placement != old
    life.bind()
    assert (life.recovery.open, life.recovery.placed, life.status.sentence) == ([], True, "")
    assert life.status.phase == "running"


def test_a_rank_without_a_place_is_open_and_its_job_not_placed() -> None:
    life = Recovering()
    life.recover(1, placed=False)
    life.end(1)
    life.bind()
    assert (life.recovery.open, life.recovery.placed, life.recovery.placed_ms) == ([1], False, 0)
    life.recover(1, how="place")
    assert (life.recovery.open, life.recovery.placed) == ([1], True)
    assert life.recovery.placed_ms == life.world.state.fold.at_ms


def test_a_restart_says_so_while_it_ends_and_waits_and_is_over_when_it_has_a_place() -> None:
    life = Recovering()
    life.recover(scope="job")
    assert (life.status.phase, life.status.sentence) == (
        "ending",
        "its pods are being deleted because of a fault: a chip is unhealthy",
    )
    assert (life.recovery.open, life.recovery.placed) == ([0, 1, 2], False)
    life.world.follow(life.job)
    life.world.evicted(life.job)
    life.world.carry_out()
    assert (life.status.phase, life.status.attempt) == ("waiting", 2)
    assert life.status.sentence == "it is placed again after a fault: a chip is unhealthy"
    assert (life.recovery.open, life.recovery.attempt, life.recovery.placed_ms) == ([], 1, 0)
    life.world.place(life.job, 1)
    assert (life.recovery.open, life.recovery.placed) == ([], True)
    assert life.recovery.placed_ms == life.world.state.fold.at_ms
    assert life.status.sentence == ""


def test_a_mark_leaves_nothing_open() -> None:
    life = Recovering()
    life.recover(1, how="mark")
    assert (life.recovery.how, life.recovery.open, life.recovery.placed) == ("mark", [], True)


def test_a_status_is_written_again_when_a_recovery_goes_on() -> None:
    life = Recovering()
    marks = [digest(life.status)]
    life.recover(0)
    marks.append(digest(life.status))
    life.end(0)
    life.bind()
    marks.append(digest(life.status))
    life.recover(1, how="mark")
    marks.append(digest(life.status))
    assert len(set(marks)) == len(marks)
    assert digest(msgspec.msgpack.decode(msgspec.msgpack.encode(life.status), type=JobStatus)) == marks[-1]
    assert encode(life.status)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            "a chip is unhealthy; step 2 replaces ranks 1,2 and keeps 6 pods; every rank was at its place after 4.2 s",
        ),
        ({"placed_ms": 0}, "a chip is unhealthy; step 2 replaces ranks 1,2 and keeps 6 pods; not every rank is at its place yet"),
        ({"scope": "job"}, "a chip is unhealthy; attempt 1 ended, all pods are replaced; every rank was at its place after 4.2 s"),
        ({"how": "mark"}, "a chip is unhealthy; 2 pods marked, nothing deleted"),
        ({"how": "backup", "ranks": [1]}, "a chip is unhealthy; the pod of rank 1 runs on until it is marked"),
    ],
)  # fmt: skip
def test_a_recovery_in_one_line(changes: dict[str, object], words: str) -> None:
    recovery = RecoveryStatus(
        2, "pod", "grace", "CardUnhealthy", "a chip is unhealthy", [1, 2], [1], 1_000, attempt=1, placed_ms=5_200
    )
    assert recovery_words(msgspec.structs.replace(recovery, **changes), 8) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open": []}, ""),
        ({}, "rank 3 recovers from a fault: a chip is unhealthy"),
        ({"open": [1, 3]}, "ranks 1,3 recover from a fault: a chip is unhealthy"),
        (
            {"unplaced": [3], "refusal": "no room"},
            "rank 3 recovers from a fault: a chip is unhealthy; the new pod of rank 3 waits for a place: no room",
        ),
        (
            {"open": [1, 3], "unplaced": [1, 3], "refusal": "no room"},
            "ranks 1,3 recover from a fault: a chip is unhealthy; the new pods of ranks 1,3 wait for places: no room",
        ),
    ],
)
def test_what_a_job_recovers_from_in_one_sentence(changes: dict[str, object], words: str) -> None:
    recovery = RecoveryStatus(2, "pod", "grace", "CardUnhealthy", "a chip is unhealthy", [3], [3], 1_000, open=[3])
    assert open_words(msgspec.structs.replace(recovery, **changes)) == words
