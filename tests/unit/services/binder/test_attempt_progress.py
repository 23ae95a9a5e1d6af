"""Progress of the binding of an attempt: what is kept when a recovery gives some ranks other places."""

from dataclasses import replace

from berth.schemas.placement import Run, placement_of
from berth.services.binder.attempt_progress import Progress
from berth.services.binder.cluster import Gang

PLACEMENT = placement_of(["a", "b"], [(0,), (0,)], [Run(2, 1)], resource="r")
GANG = Gang("ns", "j", "u", 1, PLACEMENT)
CHIPS: list[tuple[int, ...]] = [(0,), (0,)]
NO_NOTES: list[dict[str, str]] = [{}, {}]


def test_ranks_with_another_place_begin_anew_and_the_others_go_on() -> None:
    ranks = (0, 1)
    progress = Progress(
        1.0,
        GANG,
        ["a", "b"],
        CHIPS,
        NO_NOTES,
        done=set(ranks),
        failures=dict.fromkeys(ranks, "it was gone"),
        waiting_since_s=dict.fromkeys(ranks, 2.0),
        lost=dict.fromkeys(ranks, "uid"),
        unclear=set(ranks),
        failing_since_s=dict.fromkeys(ranks, 3.0),
        has_claims=True,
        refused=dict.fromkeys(ranks, ("full", 4.0)),
    )
    later = replace(GANG, step=1, steps={1: 1})
    progress.go_on(later, ["a", "c"], [(0,), (5,)], [{}, {"leaf": "x"}])
    assert progress == Progress(
        1.0,
        later,
        ["a", "c"],
        [(0,), (5,)],
        [{}, {"leaf": "x"}],
        done={0},
        failures={0: "it was gone"},
        waiting_since_s={0: 2.0},
        lost={0: "uid"},
        unclear={0},
        failing_since_s={0: 3.0},
        refused={0: ("full", 4.0)},
    )
