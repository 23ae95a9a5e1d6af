"""Pods that an earlier run of the binder bound, and that came and went before inventory said so."""

import pytest

from berth.schemas.facts import OutcomeSeen, PodPhase, RankFailure
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted, rows, status


def bound(attempt: int = 1, **changes: object) -> OutcomeSeen:
    fields: dict[str, object] = {"bound": 3} | changes
    return OutcomeSeen("team", "job", "u", attempt, "bound", **fields)  # type: ignore[arg-type]  # fields of the fact


def two_of_three() -> World:
    world = World()
    world.pods.note_job(accepted("job", "u", 3))
    world.put(a_pod("p0", job=("job", "u", 1, 0)), a_pod("p2", job=("job", "u", 1, 2), node="n2"))
    return world


def test_a_rank_that_was_bound_and_has_no_pod_is_gone() -> None:
    world = two_of_three()
    world.pods.note_bound(bound())
    (fact,) = world.facts()
    assert {rank: phase for rank, (_, phase, _) in rows(fact).items()} == {
        0: PodPhase.RUNNING,
        1: PodPhase.GONE,
        2: PodPhase.RUNNING,
    }


def test_all_ranks_are_gone_when_no_pod_is_left() -> None:
    world = World()
    world.pods.note_job(accepted("job", "u", 3))
    world.pods.note_bound(bound())
    (fact,) = world.facts()
    assert fact.phase == bytes([PodPhase.GONE] * 3)


@pytest.mark.parametrize(
    "outcome",
    [
        bound(bound=2, failures=[RankFailure(1, "no")]),
        bound(step=1, done=1),
        bound(bound=2),
        OutcomeSeen("team", "job", "u", 1, "failed", bound=3),
        OutcomeSeen("team", "job", "other", 1, "bound", bound=3),
        OutcomeSeen("team", "other", "u", 1, "bound", bound=3),
    ],
)
def test_what_does_not_say_that_all_were_bound_says_nothing_of_missing_ones(outcome: OutcomeSeen) -> None:
    world = two_of_three()
    world.pods.note_bound(outcome)
    (fact,) = world.facts()
    assert sorted(rows(fact)) == [0, 2]


def test_an_attempt_that_is_over_is_left_alone() -> None:
    world = World()
    world.pods.note_job(accepted("job", "u", 3))
    world.pods.note_status(status("job", "u", 1, "failed"))
    world.pods.note_bound(bound())
    assert world.facts() == []
