"""The binder's loop while gangs recover: what it asks of the cluster, and what its outcomes say."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import pytest

from berth.runtime.errors import PoisonError, TransientError
from berth.schemas.facts import OutcomeSeen, RankFailure
from berth.schemas.ledger import Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recovery import How, Recovery, Scope
from berth.services.binder.cluster import BindResult, Gang, Leave, Manner, NotYetError
from berth.services.binder.loop import Loop
from berth.services.binder.work import Attempt, AttemptKey, Clearing
from tests.unit.services.binder.test_loop import KEY, Binder, Cluster, NotedLoop

CAUSE = "pod of rank 1: its chip 0 on node n1 is unhealthy"


def places(*nodes: str) -> Placement:
    return placement_of(list(nodes), [(0,)] * len(nodes), [Run(len(nodes), 1)], resource="huawei.com/Ascend910")


class RecoveringCluster(Cluster):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.bound: list[tuple[int, tuple[int, ...] | None, bool]] = []
        """Step, ranks and whether others run, of each call."""
        self.removed: list[dict[int, Leave]] = []
        self.marked: list[tuple[list[int], str]] = []
        self.reasons: list[str] = []
        self.cleared: list[AttemptKey] = []
        self.saves: list[tuple[int, int]] = []
        """Pods deleted before agents were told to save, and since when the job recovers."""
        self.unsaved: list[Exception] = []
        """What comes of the next calls that tell agents."""
        self.said: Callable[[], Awaitable[Sequence[OutcomeSeen]]] | None = None
        self.announced: list[list[int]] = []
        """Ranks that the last outcome called open when pods were deleted."""
        self.meanwhile: Callable[[], None] | None = None
        """What happens while the next pods are bound."""

    async def bind(self, gang: Gang) -> BindResult:
        self.bound.append((gang.step, gang.todo, gang.recovers))
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        return await super().bind(gang)

    async def remove(self, gang: Gang, leaves: Mapping[int, Leave]) -> None:
        assert gang.uid == "a"
        await self._note()
        self.removed.append(dict(leaves))
        if self.errors:
            raise self.errors.pop(0)

    async def _note(self) -> None:
        if self.said is not None and (said := await self.said()):
            self.announced.append(said[-1].open)

    async def clear(self, clearing: Clearing) -> None:
        self.cleared.append((clearing.uid, clearing.attempt))
        if self.errors:
            raise self.errors.pop(0)

    async def mark(self, gang: Gang, ranks: Sequence[int], kind: str) -> None:
        assert gang.uid == "a"
        self.marked.append((list(ranks), kind))

    async def request_checkpoint(self, gang: Gang, since_ms: int) -> None:
        assert gang.uid == "a"
        if self.unsaved:
            raise self.unsaved.pop(0)
        self.saves.append((len(self.removed) + len(self.reasons), since_ms))

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        await self._note()
        self.reasons.append(reason)
        await super().evict(gang, reason=reason, manner=manner)


class Desk(Binder):
    """A gang of three pods that is placed."""

    cluster: RecoveringCluster

    def __init__(self) -> None:
        super().__init__(NotedLoop)
        self.cluster = RecoveringCluster()
        self.cluster.said = self.outcomes
        self.loop._cluster = self.cluster
        self.work.fold.settings = Settings()
        self.cluster.answer = BindResult(3)

    async def open(self) -> "Desk":
        await super().open()
        self.write(verdicts=[Verdict("ns", "job-a", "a", 1, places("n0", "n1", "n2"))])
        return self

    async def bound(self) -> "Desk":
        await self.open()
        await self.loop._advance(KEY)
        return self

    def write(self, **parts: object) -> None:
        record = Round(1, self.head, 0, 0, 1, **parts)  # type: ignore[arg-type]  # fields of the record
        self.head += 1
        self.loop.wake(self.work.apply_record(self.head, self.work.fold.encoded(record)))

    def recover(
        self,
        *ranks: int,
        how: How = "force",
        nodes: Sequence[str] = (),
        until_ms: int = 0,
        scope: Scope = "pod",
        saves: bool = False,
    ) -> None:
        step = self.work.attempts[KEY].holding.step + 1
        placement = places(*nodes) if nodes else None
        self.write(
            recoveries=[
                Recovery(
                    "ns", "job-a", "a", 1, step, "CardUnhealthy", CAUSE, scope, how, list(ranks), [ranks[0]], 5,
                    until_ms, placement, saves=saves,
                )
            ]
        )  # fmt: skip

    async def go(self) -> OutcomeSeen:
        """Do what is due; returns the last outcome."""
        await self.loop._advance(KEY)
        return (await self.outcomes())[-1]

    def since(self, seconds: float) -> Recovery:
        """The recovery of the gang, as if it had begun so many seconds ago."""
        found = self.work.attempts[KEY].recovery
        assert found is not None
        return msgspec.structs.replace(found, since_ms=self.server.clock.now_ms() - round(seconds * 1000))

    @property
    def recovered_s(self) -> list[float]:
        """Sum of the durations of recoveries that are over, if any is."""
        metrics = self.instruments.registry.collectors
        name = "berth_binder_recovery_seconds"
        count = metrics.get_sample_value(f"{name}_count")
        return [metrics.get_sample_value(f"{name}_sum") or 0] if count else []

    @property
    def waits(self) -> list[float]:
        assert isinstance(self.loop, NotedLoop)
        return [wait_s for _, wait_s in self.loop.waits]


def said(outcome: OutcomeSeen) -> tuple[str, int, list[int], int, int]:
    return (outcome.state, outcome.bound, [one.rank for one in outcome.failures], outcome.step, outcome.done)


async def test_a_step_is_taken_up_then_carried_out() -> None:
    desk = await Desk().bound()
    assert said((await desk.outcomes())[-1]) == ("bound", 3, [], 0, 0)
    desk.recover(1, 2, nodes=("n5", "n2"))
    assert said(await desk.go()) == ("bound", 3, [], 1, 0)
    assert desk.cluster.removed == [{rank: Leave(1, f"n{rank}", at_once=True, reason=CAUSE) for rank in (1, 2)}]
    desk.write(releases=[Release("a", 1, "fault", ranks=[1])])
    desk.cluster.answer = BindResult(1)
    assert said(await desk.go()) == ("bound", 2, [], 1, 0), "a rank still leaves"
    assert desk.recovered_s == []
    desk.write(releases=[Release("a", 1, "fault", ranks=[2])])
    desk.work.attempts[KEY].recovery = desk.since(7)
    assert said(await desk.go()) == ("bound", 3, [], 1, 1)
    assert desk.cluster.bound[1:] == [(1, (1,), True), (1, (2,), True)]
    assert desk.recovered_s == [7]
    assert len(desk.cluster.removed) == 1
    assert desk.work.next_step(KEY, desk.server.clock.now_ms()) is None


async def test_before_pods_are_deleted_it_is_published_which_ranks_recover() -> None:
    desk = await Desk().bound()
    desk.recover(1, 2, nodes=("n5", "n2"))
    assert (await desk.go()).open == [1, 2]
    assert desk.cluster.announced == [[1, 2]]
    desk.write(releases=[Release("a", 1, "fault", ranks=[1])])
    desk.cluster.answer = BindResult(1)
    assert (await desk.go()).open == [2]
    desk.write(releases=[Release("a", 1, "fault", ranks=[2])])
    assert (await desk.go()).open == []
    desk.recover(0)
    assert (await desk.go()).open == [0]
    desk.recover(0, 1, 2, scope="job")
    await desk.go()
    assert desk.cluster.announced == [[1, 2], [0], [0, 1, 2]]


async def test_a_step_is_taken_up_once_that_is_published() -> None:
    desk = await Desk().bound()
    desk.recover(1, nodes=("n5",))
    publish = desk.loop._publish
    left = [True, False]
    """Whether the next outcomes reach the bus: the announcement does."""

    async def unreliable(attempt: Attempt, outcome: OutcomeSeen) -> None:
        if left and not left.pop(0):
            raise TransientError("away", retry_after_s=1)
        await publish(attempt, outcome)

    desk.loop._publish = unreliable  # type: ignore[method-assign]  # the bus is away
    assert said(await desk.go()) == ("bound", 3, [], 0, 0)
    assert said(await desk.go()) == ("bound", 3, [], 1, 0)


async def test_a_deletion_that_is_refused_or_fails_is_not_done() -> None:
    desk = await Desk().bound()
    desk.recover(1)
    desk.cluster.errors = [PoisonError("the role lacks a right"), TransientError("away", retry_after_s=3)]
    for _ in range(2):
        assert said(await desk.go()) == ("bound", 3, [], 0, 0)
    assert len(desk.waits) == 2
    assert said(await desk.go()) == ("bound", 2, [], 1, 1)
    assert len(desk.cluster.removed) == 3


async def test_a_rank_that_cannot_be_bound_is_told_and_the_others_go_on() -> None:
    desk = await Desk().bound()
    desk.recover(1, 2, nodes=("n5", "n2"))
    await desk.go()
    desk.write(releases=[Release("a", 1, "fault", ranks=[1, 2])])
    desk.cluster.answer = BindResult(0, [RankFailure(1, "node n5 is not there any more")], (2,))
    desk.cluster.errors = []

    class Once(RecoveringCluster):
        async def bind(self, gang: Gang) -> BindResult:
            if gang.todo == (2,):
                self.bound.append((gang.step, gang.todo, gang.recovers))
                raise NotYetError("no pod yet", retry_after_s=60)
            return await super().bind(gang)

    once = Once()
    once.answer = desk.cluster.answer
    desk.loop._cluster = once
    outcome = await desk.go()
    assert said(outcome) == ("bound", 1, [1], 1, 0)
    assert outcome.failures[0].reason == "node n5 is not there any more"
    assert once.bound == [(1, (1, 2), True), (1, (2,), True)]
    assert desk.waits == [60]
    # The rank is released, and gets another place.
    desk.write(releases=[Release("a", 1, "fault", ranks=[1])])
    desk.recover(1, how="place", nodes=("n7",))
    desk.loop._cluster = desk.cluster
    desk.cluster.answer = BindResult(2)
    assert said(await desk.go()) == ("bound", 3, [], 2, 2)
    assert desk.cluster.bound[-1] == (2, (1, 2), True)


async def test_a_rank_that_is_released_while_others_are_bound_is_bound_after_them() -> None:
    desk = await Desk().bound()
    desk.recover(1, 2, nodes=("n3", "n4"))
    await desk.go()
    desk.write(releases=[Release("a", 1, "fault", ranks=[1])])
    desk.cluster.answer = BindResult(1)
    desk.cluster.meanwhile = lambda: desk.write(releases=[Release("a", 1, "fault", ranks=[2])])
    assert said(await desk.go()) == ("bound", 3, [], 1, 1)
    assert desk.cluster.bound[1:] == [(1, (1,), True), (1, (2,), True)]


async def test_a_recovery_before_the_first_outcome_is_told_with_it() -> None:
    desk = await Desk().open()
    desk.recover(1, nodes=("n5",))
    desk.cluster.answer = BindResult(2)
    assert said(await desk.go()) == ("bound", 2, [], 1, 0)
    assert desk.cluster.bound == [(1, (0, 2), False)]
    assert [list(leaves) for leaves in desk.cluster.removed] == [[1]]


async def test_pods_that_are_late_are_deleted_at_once_and_only_once() -> None:
    desk = await Desk().bound()
    now_ms = desk.server.clock.now_ms()
    desk.recover(1, how="grace", until_ms=now_ms + 900_000, nodes=("n5",))
    assert said(await desk.go()) == ("bound", 3, [], 1, 0)
    assert desk.waits == [900]
    desk.loop.wake([KEY])
    assert desk.waits == [900, 900]
    desk.server.clock.advance(900)
    await desk.go()
    assert [leaves[1].at_once for leaves in desk.cluster.removed] == [False, True]
    desk.loop.wake([KEY])
    await desk.go()
    assert (len(desk.cluster.removed), desk.waits) == (2, [900, 900])


async def test_a_retry_is_no_later_than_the_end_of_the_grace() -> None:
    desk = await Desk().bound()
    desk.recover(1, how="grace", until_ms=desk.server.clock.now_ms() + 2_000)
    await desk.go()
    await desk.loop._advance(KEY)
    assert desk.waits == [2, 2]
    Loop._again_in(desk.loop, KEY, 60)
    timer = desk.loop._waiting.pop(KEY)
    assert timer.when() - asyncio.get_running_loop().time() <= 2
    timer.cancel()


async def test_marks_are_written_before_the_step_is_told() -> None:
    desk = await Desk().bound()
    desk.recover(1, how="mark")
    assert said(await desk.go()) == ("bound", 3, [], 1, 1)
    assert (desk.cluster.marked, desk.cluster.removed) == ([([1], "CardUnhealthy")], [])


@pytest.mark.parametrize("how", ["grace", "force"])
async def test_a_whole_job_ends_in_the_manner_of_its_step(how: How) -> None:
    desk = await Desk().bound()
    until_ms = desk.server.clock.now_ms() + 900_000 if how == "grace" else 0
    desk.recover(0, 1, 2, how=how, until_ms=until_ms, scope="job")
    assert said(await desk.go()) == ("evicted", 3, [], 0, 0)
    assert desk.cluster.asked[1:] == [f"evict a with {how}"]
    assert desk.cluster.reasons == [CAUSE]
    desk.server.clock.advance(900)
    await desk.go()
    late = ["evict a with force"] if how == "grace" else []
    assert desk.cluster.asked[2:] == late
    await desk.go()
    assert desk.cluster.asked[2:] == late


async def test_a_job_that_starts_anew_is_cleared_before_it_is_bound_again() -> None:
    desk = await Desk().bound()
    desk.recover(0, 1, 2, scope="job")
    desk.write(releases=[Release("a", 1, "fault", again=True)])
    desk.write(verdicts=[Verdict("ns", "job-a", "a", 2, places("n0", "n1", "n2"))])
    desk.cluster.errors = [TransientError("away", retry_after_s=3)]
    await desk.loop._advance(("a", 2))
    assert (desk.cluster.cleared, desk.cluster.asked) == ([("a", 2)], ["bind a"])
    await desk.loop._advance(("a", 2))
    assert (desk.cluster.cleared, desk.cluster.asked) == ([("a", 2)] * 2, ["bind a", "bind a"])
    assert desk.work.clearings == {}


async def test_a_job_that_is_cancelled_while_it_recovers_ends_in_its_own_time() -> None:
    desk = await Desk().bound()
    desk.recover(1, nodes=("n5",))
    await desk.go()
    desk.write(evictions=[Eviction("a", 1, "cancelled")])
    assert said(await desk.go()) == ("evicted", 3, [], 1, 0)
    assert desk.cluster.asked[1:] == ["evict a"]
    desk.write(releases=[Release("a", 1, "cancelled")])
    assert KEY not in desk.work.attempts


@pytest.mark.parametrize("scope", ["pod", "job"])
async def test_agents_are_told_to_save_before_the_first_pod_is_deleted(scope: Scope) -> None:
    desk = await Desk().bound()
    ranks = (1,) if scope == "pod" else (0, 1, 2)
    desk.recover(*ranks, how="grace", until_ms=desk.server.clock.now_ms() + 900_000, scope=scope, saves=True)
    desk.cluster.unsaved = [TransientError("the server does not answer")]
    await desk.go()
    assert (desk.cluster.removed, desk.cluster.reasons) == ([], []), "they do not know it yet"
    await desk.go()
    assert desk.cluster.saves == [(0, 5)]
    assert len(desk.cluster.removed) + len(desk.cluster.reasons) == 1


async def test_agents_are_told_for_a_step_that_another_has_followed_before_pods_were_deleted() -> None:
    desk = await Desk().bound()
    desk.recover(1, how="grace", until_ms=desk.server.clock.now_ms() + 900_000, saves=True)
    desk.recover(2)
    await desk.go()
    assert desk.cluster.saves == [(0, 5)]


async def test_agents_are_told_nothing_when_pods_need_not_save() -> None:
    desk = await Desk().bound()
    desk.recover(1)
    await desk.go()
    assert (len(desk.cluster.removed), desk.cluster.saves) == (1, [])


async def test_the_agents_of_a_cancelled_job_are_told_nothing() -> None:
    desk = await Desk().open()
    desk.recover(1, how="grace", until_ms=desk.server.clock.now_ms() + 900_000, saves=True)
    desk.write(evictions=[Eviction("a", 1, "cancelled")])
    await desk.go()
    assert (desk.cluster.reasons, desk.cluster.saves) == (["its job was cancelled"], [])
