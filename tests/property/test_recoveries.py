"""Laws of recoveries: whatever breaks and whenever, no chip has two owners, and nothing is left at the end."""

from collections.abc import Callable
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.schemas.facts import PodPhase
from berth.schemas.recovery import How, Scope
from tests.property.test_state import COLUMNS, HOLDING, columns_of
from tests.support import hot_switches
from tests.support.recovering_gangs import SHARE, Job, RecoveringGangs

P = PodPhase
HOWS: Final[tuple[How, ...]] = ("grace", "force", "place", "mark", "grace")
SCOPES: Final[tuple[Scope, ...]] = ("pod", "rank-block", "superpod", "level", "pod", "pod", "job")


def some_jobs() -> list[Job]:
    return [
        Job("plain", 3, 2),
        Job("share", 2, 1, share=SHARE),
        Job("leaf", 4, 1, affinity="switch"),
        Job("block", 2, 2, affinity="block"),
    ]


def running() -> RecoveringGangs:
    """Jobs that are placed, and all of them but one bound."""
    world = RecoveringGangs(some_jobs())
    for number, job in enumerate(world.jobs.values()):
        world.place(job, number)
        world.follow(job)
        for rank in range(job.pods if number else 0):
            world.bind(job, rank)
        world.publish(job)
    return world


def recover(world: RecoveringGangs, job: Job, ranks: list[int], one: int, two: int) -> None:
    how, scope = HOWS[two % 5], SCOPES[(one + two) % 7]
    world.recover(job, ranks, how, two, placed=two % 3 > 0, scope=scope, returns=two % 7 == 0)


def bind(world: RecoveringGangs, job: Job, ranks: list[int], one: int, _: int) -> None:
    for rank in ranks or [one % job.pods]:
        world.bind(job, rank)


def fail(world: RecoveringGangs, job: Job, ranks: list[int], *_: int) -> None:
    for rank in ranks:
        world.bind(job, rank, fails=True)


def end(_: RecoveringGangs, job: Job, ranks: list[int], __: int, two: int) -> None:
    for rank in ranks:
        if rank in job.real and job.real[rank].phase in {P.RUNNING, P.TERMINATING}:
            job.real[rank].phase = (P.GONE, P.FAILED, P.SUCCEEDED, P.TERMINATING)[two % 4]


def back_up(world: RecoveringGangs, job: Job, ranks: list[int], *_: int) -> None:
    for rank in ranks:
        hot_switches.back_up(world, job, rank)


def bind_backups(job: Job) -> None:
    for rank in range(job.pods):
        hot_switches.bind_backup(job, rank)


def switch(world: RecoveringGangs, job: Job, ranks: list[int], one: int, two: int) -> None:
    """A hot switch up to where its backup pod runs."""
    back_up(world, job, ranks[:1] or [one % job.pods])
    hot_switches.place_backup(world, job, two)
    world.follow(job)
    bind_backups(job)


def lose_backup(world: RecoveringGangs, job: Job, ranks: list[int], *_: int) -> None:
    for rank in ranks[:1]:
        world.lose_backup(job, rank)


def cancel(world: RecoveringGangs, job: Job, *_: object) -> None:
    job.cancelled = True
    world.job_fact(job)


def restart(world: RecoveringGangs, *_: object) -> None:
    """Go on with what a snapshot holds."""
    other = world.loaded()
    assert columns_of(other, (*COLUMNS, *HOLDING)) == columns_of(world.state, (*COLUMNS, *HOLDING))
    assert leaf_index_of(other.indexes).occupancy.jobs() == leaf_index_of(world.state.indexes).occupancy.jobs()
    world.to_examine.update(dict.fromkeys(other.fold.gangs))
    world.state = other


VERBS: Final[dict[str, tuple[int, Callable[..., object]]]] = {
    "place": (3, lambda world, job, _, __, two: world.place(job, two)),
    "recover": (4, recover),
    "bind": (6, bind),
    "fail": (1, fail),
    "back up": (1, back_up),
    "switch": (4, switch),
    "place backup": (1, lambda world, job, _, __, two: hot_switches.place_backup(world, job, two)),
    "bind backups": (1, lambda _, job, *__: bind_backups(job)),
    "lose backup": (1, lose_backup),
    "follow": (5, lambda world, job, *_: world.follow(job)),
    "take up": (2, lambda world, job, *_: world.take_up(job)),
    "end": (4, end),
    "publish": (4, lambda world, job, *_: world.publish(job)),
    "examine": (5, lambda world, *_: world.carry_out()),
    "cancel": (1, cancel),
    "evicted": (1, lambda world, job, *_: world.evicted(job)),
    "restart": (1, restart),
}
"""How often each event is drawn, and what it does."""
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from([verb for verb, (often, _) in VERBS.items() for _ in range(often)]),
        st.integers(0, 3),
        st.integers(0, 15),
        st.integers(0, 20),
    ),
    min_size=30,
    max_size=60,
)


def lived(world: RecoveringGangs, steps: list[tuple[str, int, int, int]]) -> RecoveringGangs:
    for verb, which, one, two in steps:
        job = list(world.jobs.values())[which]
        ranks = [rank for rank in range(job.pods) if one >> rank & 1]
        VERBS[verb][1](world, job, ranks, one, two)
        world.check()
    return world


def ended(world: RecoveringGangs) -> None:
    """Cancel all jobs and let their pods end."""
    for job in world.jobs.values():
        if not job.cancelled:
            job.cancelled = True
            world.job_fact(job)
        world.publish(job)
    for _ in range(12):
        world.carry_out()
        for job in world.jobs.values():
            world.follow(job)
            world.take_up(job)
            world.evicted(job)


@given(steps=STEPS)
def test_no_chip_has_two_owners_and_nothing_is_left_at_the_end(steps: list[tuple[str, int, int, int]]) -> None:
    world = lived(running(), steps)
    ended(world)
    assert world.state.fold.holdings == {}
    assert columns_of(world.shard(), COLUMNS) == columns_of(world.state, COLUMNS)
    table = world.state.table
    rows = range(len(table))
    assert {(int(table.used[row]), int(table.releasing[row]), int(table.free[row])) for row in rows} == {(0, 0, 15)}
    assert all(int(table.cpu_free[row]) == int(table.cpu[row]) for row in rows)
    assert all(not any(node.pods) for node in world.state.shares.nodes.values())
