"""The pure turn on whatever happens: it decides the same however often it was looked at, whatever rounds came to
nothing and from whichever snapshot, and nobody sleeps or is held who would be placed if everybody were tried anew.
"""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import pack_nodes
from berth.core.scheduling.turn import MissingShards
from berth.schemas.facts import NodeHealth, TimerSeen
from berth.schemas.intake import Task
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import foreign

Act = Callable[[Seat], None]
NODES = "abcde"
CPUS = (0, 0, 1_000, 70_000, 100_000, 190_000)
"""Requests in thousandths; a node has 192,000."""
SHARDS = 7
LOOK_MS = 2_000
WAYS = st.fixed_dictionaries(
    {
        "queue_policy": st.sampled_from(("skip", "fifo", "easy", "conservative")),
        "reserve_chips": st.sampled_from((1, 8, 16)),
        "reserve_depth": st.sampled_from((1, 2, 8)),
        "unknown_run_ms": st.sampled_from((1, 10, 1_000)),
        "round_gangs_max": st.sampled_from((1, 2, 50)),
    }
)
VERBS = (
    ("submit",) * 8 + ("cancel", "cancel", "update") + ("ended",) * 4 + ("health",) * 2 + ("node", "foreign", "time")
)
TURNS = ("record",) * 6 + ("silence", "taken back", "restart")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(VERBS), st.integers(0, 40), st.integers(0, 40), st.lists(st.sampled_from(TURNS), max_size=5)
    ),
    min_size=10,
    max_size=60,
)


class Story:
    """Two with the same history: one is examined often, the other for records alone, now and then from a snapshot."""

    def __init__(self, way: dict[str, object]) -> None:
        self.live, self.reader = Seat(*NODES, **way), Seat(*NODES, **way)
        self.now_ms = 1
        self.jobs = 0
        self.gone: dict[str, None] = {}

    def act(self, verb: str, one: int, two: int) -> None:
        """Let something happen to both."""
        self.now_ms += (0, 1, 5, 50)[one % 4]
        happens = self._act(verb, one, two)
        if happens is not None:
            happens(self.live)
            happens(self.reader)

    def _act(self, verb: str, one: int, two: int) -> Act | None:
        match verb:
            case "submit":
                self.jobs += 1
                return self._job(self.jobs, one, two)
            case "cancel" | "update":
                number = 1 + one % max(self.jobs, 1)
                return self._change(verb, number, one, two)
            case "ended":
                names = sorted(one.name for one in self.live.state.fold.holdings.values() if not one.foreign)
                return (lambda seat: seat.ended(names[one % len(names)])) if names else None
            case "health" | "node" | "foreign":
                return self._on_node(verb, NODES[one % len(NODES)], two)
            case _:
                return lambda seat: seat.fact("timer", TimerSeen(self.now_ms))

    def _job(self, number: int, one: int, two: int) -> Act:
        chips, replicas = (1, 2, 4, 8, 8)[one % 5], (1, 1, 2, 3)[two % 4]
        cpu = CPUS[(one + two) % len(CPUS)]
        worker, master = Task("worker", replicas, chips, cpu), Task("master", 1 + one % 2, 0, cpu)
        job = a_job(
            f"j{number}",
            tasks=([worker], [worker], [master], [master, worker], [worker, master])[(one // 5 + two) % 5],
            priority=(one + two) % 3,
            run_ms=(0, 0, 1, 20, 500)[two % 5],
        )
        return lambda seat: seat.job(job)

    def _change(self, verb: str, number: int, one: int, two: int) -> Act | None:
        state = self.live.state
        seen = state.jobs.get(("default", f"j{number}"))
        if seen is None or seen.state != "accepted" or seen.request is None:
            return None
        request = seen.request
        if verb == "cancel":
            return lambda seat: seat.job(request, state="cancelled")
        known = state.fold.gangs.get(seen.uid)
        return self._job(number, one, two) if known is None or known.phase == "waiting" else None

    def _on_node(self, verb: str, node: str, two: int) -> Act:
        if verb == "foreign":
            return lambda seat: foreign(seat, node, chips=(1, 3, 0xFF)[two % 3])
        if verb == "node":
            return self._node(node)
        level = (NodeHealth.OK, NodeHealth.OK, NodeHealth.NO_NEW_WORK, NodeHealth.EVICT)[two % 4]
        return lambda seat: seat.ill(node, level)

    def _node(self, node: str) -> Act:
        """A node goes, or comes back."""
        described = [a_node(node, leaf=node)] if node in self.gone else []
        if described:
            del self.gone[node]
        else:
            self.gone[node] = None
        fact = pack_nodes(f"leaf-{node}", described, at_ms=1)
        return lambda seat: seat.fact(f"node.leaf-{node}", fact)

    def turn(self, how: str, shard: int) -> None:
        """A turn of the one, and of the other if there is a record."""
        self.now_ms += 1
        if how == "taken back":
            opening = self.live.scheduler.open(self.now_ms).opening
            if opening is not None:
                self.live.scheduler.take_back(opening)
            return
        missing_shards = MissingShards(SHARDS, [shard % SHARDS]) if how == "silence" else None
        record = self.live.round(missing_shards, self.now_ms)
        if record is not None:
            assert record == self.reader.round(missing_shards, self.now_ms)
        if how == "restart":
            self.reader = restarted(self.live)

    def settle(self, *, looks: int) -> None:
        """Turn until nothing is to be decided at this moment, with the clock of the facts."""
        for _ in range(looks):
            self.now_ms += LOOK_MS
            if 0 < self.live.scheduler.queue.retry_at_ms <= self.now_ms:
                self.live.fact("timer", TimerSeen(self.now_ms))
            while self.live.round(at_ms=self.now_ms) is not None:
                pass


@given(way=WAYS, steps=STEPS)
def test_looks_failed_rounds_and_restarts_decide_nothing_and_nobody_sleeps_who_could_run(
    way: dict[str, object], steps: list[tuple[str, int, int, list[str]]]
) -> None:
    story = Story(way)
    for verb, one, two, turns in steps:
        story.act(verb, one, two)
        for how in turns:
            story.turn(how, two)
    story.settle(looks=4)
    assert not story.live.scheduler.has_work
    anew = restarted(story.live)
    anew.begin(**way | {"round_gangs_max": 500})
    record = anew.round(at_ms=story.now_ms)
    assert record is None or [verdict.name for verdict in record.verdicts if verdict.placement is not None] == []
