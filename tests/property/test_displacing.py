"""Random histories of small cells in which gangs end for others, give up ranks, share chips, fail and come back.

After each round the state is sound, and a reader that begins now makes the same record.
"""

from collections import Counter

import msgspec

from berth.core.cluster.node_packing import pack_nodes
from berth.core.state.holdings.holding import Holding
from berth.core.state.invariants import check
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import NodeHealth, OutcomeSeen, OutcomeState, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Preemption
from berth.schemas.ledger import Round
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.recovery import DISPLACED
from tests.support.cells import a_job, a_node
from tests.support.dice import Dice
from tests.support.queue_cells import limits
from tests.unit.core.scheduling.test_scheduler import Seat, restarted

SEEDS = range(40, 70)
STEPS = 60
NODES = ("a", "b", "c")
SHARED = "soft-share"


class World:
    """One history.

    Args:
        seed: What it is made of.
    """

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.told: Counter[str] = Counter()
        self.now_ms = 1_000
        self._jobs = 0
        self._has_queues = self.dice.chance(0.4)
        self.seat = Seat(
            preempt=2,
            preempt_force=self.dice.chance(0.6),
            evictions_per_hour=0,
            grace_over_ms=2_000,
            queues=1 if self._has_queues else 0,
            queue_policy=self.dice.pick("skip", "skip", "easy", "conservative", "fifo"),
            reserve_chips=4,
        )
        for name in NODES:
            node = a_node(name) if name < "c" else a_node(name, SHARED, chips=0b111, allocatable=3)
            self.seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))
        for queue in (Queue("q0", deserved=limits(4)), Queue("q1", capability=limits(8))) if self._has_queues else ():
            self.seat.fact(f"queue.{queue.name}", QueueSeen(queue))

    def live(self) -> None:
        """Live through the history."""
        for _ in range(12):
            self._submit()
            self._round()
        for _ in range(STEPS):
            self._act()
            self.now_ms += self.dice.pick(1, 50, 3_000, 40_000)
            for _ in range(2):
                self._round()

    def _act(self) -> None:
        match self.dice.number(0, 16):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self._submit()
            case 6 | 7 | 8 | 9 | 10 | 11:
                for holding in self._holdings():
                    if (holding.ending or holding.leaving()) and self.dice.chance(0.7):
                        self._left(holding)
                    elif not (holding.ending or holding.leaving() or holding.foreign) and self.dice.chance(0.5):
                        ranks = [rank for rank in range(holding.placement.pods()) if rank not in holding.gone]
                        self._shows(holding, ranks, PodPhase.RUNNING)
            case 12 | 13:
                self._end_one()
            case 14:
                level = self.dice.pick(NodeHealth.OK, NodeHealth.OK, NodeHealth.NO_NEW_WORK, NodeHealth.EVICT)
                self.seat.ill(self.dice.pick(*NODES), level)
            case 15:
                self._find()
            case _:
                self._cancel()

    def _submit(self) -> None:
        self._jobs += 1
        name, pods, kind = f"j{self._jobs}", self.dice.number(1, 4), self.dice.number(0, 4)
        fields: dict[str, object] = {
            "product": SHARED if kind < 2 else "module910bx8",
            "replicas": pods if kind else 1,
            "run_ms": self.dice.pick(0, 10_000, 100_000),
            "priority": self.dice.pick(0, 0, 0, 1, 2, 5),
            "queue": self.dice.pick("q0", "q1"),
            "preemption": self.dice.pick(None, None, None, Preemption(never=True), Preemption(preemptable=False)),
        }
        if kind == 0:
            fields["annotations"] = {}
        if kind > 1:
            fields["chips"] = self.dice.pick(1, 2, 4, 8)
        if kind > 2 and pods > 1:
            fields["min_available"] = self.dice.number(1, pods - 1)
        if kind > 1 and self.dice.chance(0.5):
            fields["labels"] = {"fault-scheduling": self.dice.pick("grace", "force"), "pod-rescheduling": "on"}
        request = a_job(name, **fields)  # type: ignore[arg-type]  # fields of a request
        self.seat.job(_sharing(request, self.dice.pick(20, 50, 70, 100)) if kind == 1 else request)

    def _holdings(self) -> list[Holding]:
        return [holding for _, holding in sorted(self.seat.state.fold.holdings.items())]

    def _left(self, holding: Holding) -> None:
        """Pods that leave are gone; those that stay run."""
        gone = {*holding.gone, *holding.leaving(), *(range(holding.placement.pods()) if holding.ending else ())}
        ranks = [rank for rank in range(holding.placement.pods()) if rank not in gone]
        self._shows(holding, ranks, PodPhase.RUNNING)
        state: OutcomeState = "evicted" if holding.ending else "bound"
        fact = OutcomeSeen(
            "default", holding.name, holding.uid, holding.attempt, state, at_ms=self.now_ms, step=holding.step
        )
        self.seat.fact(f"outcome.default.{holding.name}", fact)

    def _shows(self, holding: Holding, ranks: list[int], phase: PodPhase) -> None:
        names = [holding.placement.names()[rank] for rank in ranks]
        nodes = sorted(set(names))
        index = [nodes.index(name) for name in names]
        steps = pack([holding.step_of(rank) for rank in ranks], 4)
        fact = PodsSeen(
            "default", holding.name, holding.uid, holding.attempt, pack(ranks, 4), pack_names(nodes), pack(index, 4),
            pack([phase] * len(ranks), 1), pack([0] * len(ranks), 8), steps=steps, steering=self._steering(holding.name),
        )  # fmt: skip
        self.seat.fact(f"pod.default.{holding.name}", fact)

    def _steering(self, name: str) -> dict[str, str]:
        job = self.seat.state.jobs.get(("default", name))
        labels = job.request.labels if job is not None and job.request is not None else {}
        return {key: labels[key] for key in ("fault-scheduling", "pod-rescheduling") if key in labels}

    def _end_one(self) -> None:
        running = [one for one in self._holdings() if not one.ending]
        if running:
            one = self.dice.pick(*running)
            self._shows(one, [rank for rank in range(one.placement.pods()) if rank not in one.gone], PodPhase.SUCCEEDED)

    def _find(self) -> None:
        """A pod of another scheduler runs on chips of a node, whoever has them."""
        self._jobs += 1
        name = f"f{self._jobs}"
        mask = pack([1 << self.dice.number(0, 2)], 8)
        fact = PodsSeen(
            "default", name, f"uid-{name}", 0, pack([0], 4), pack_names([self.dice.pick(*NODES)]),
            pack([0], 4), pack([PodPhase.RUNNING], 1), mask, resource="huawei.com/Ascend910", foreign=True,
        )  # fmt: skip
        self.seat.fact(f"pod.default.{name}", fact)

    def _cancel(self) -> None:
        jobs = [job for _, job in sorted(self.seat.state.jobs.items()) if job.state == "accepted" and job.request]
        if jobs and (request := self.dice.pick(*jobs).request) is not None:
            self.seat.job(request, state="cancelled")

    def _round(self) -> None:
        other = restarted(self.seat)
        record, again = self.seat.round(at_ms=self.now_ms), other.round(at_ms=self.now_ms)
        assert _told(record) == _told(again)
        check(self.seat.state)
        for one in record.recoveries if record is not None else ():
            self.told["step of a fault"] += one.kind not in DISPLACED
            if one.kind in DISPLACED:
                shares = self.seat.state.fold.holdings[one.uid, one.attempt].placement.share is not None
                self.told[f"{one.scope} {one.how}{' shared' if shares else ''}"] += 1
        self.told["adopted"] += len(record.adoptions) if record is not None else 0
        for reserved in record.reserved if record is not None else ():
            self.told["shared place" if reserved.placement.share is not None else "place"] += 1
            self.told["prolonged"] += reserved.is_prolonged


def _sharing(request: JobRequest, percent: int) -> JobRequest:
    quotas = {"aicoreQuota": str(percent), "hbmQuota": "4000", "policy": "elastic"}
    labels = {f"huawei.com/scheduler.softShareDev.{key}": value for key, value in quotas.items()}
    return msgspec.structs.replace(request, labels=request.labels | labels)


def _told(record: Round | None) -> object:
    """What a record says; nothing for one without an entry."""
    if record is None or not (record.verdicts or record.recoveries or record.releases or record.evictions):
        return None
    return record


def test_each_state_is_sound_and_a_reader_that_begins_anywhere_decides_the_same() -> None:
    told: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(seed)
        try:
            world.live()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        told += world.told
    seen = {"job grace", "job grace shared", "pod grace", "place", "shared place", "prolonged", "step of a fault"}
    assert seen <= told.keys(), told
