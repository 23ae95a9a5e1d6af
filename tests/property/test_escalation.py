"""Escalation against a model of its own: what leaves in which order, whatever faults and labels come together."""

from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.faults.escalation import Escalation, Progress, Wanted, escalate
from berth.core.faults.model import JobDiagnosis, PodFault, PodFaultKind
from berth.core.faults.scopes import GangShape
from berth.core.requests.fault_rules import FaultRules
from berth.schemas.ledger import Settings
from berth.schemas.recovery import Recovery

SIZE = 12
GROUPS = {"plain": SIZE, "superpod": 6, "rack": 3, "level": 2}


class Event(NamedTuple):
    """Something that happens to a job after a wait."""

    wait_ms: int
    faulty: frozenset[int]
    kind: PodFaultKind
    process: str
    is_placed: bool
    """The next step finds its places."""
    new_pods: bool
    """Pods that left have new ones, from now on."""


EVENTS = st.builds(
    Event,
    st.sampled_from([0, 1, 2_999, 3_000, 6_000, 12_000, 50_000, 70_000]),
    st.frozensets(st.integers(0, SIZE - 1), max_size=3),
    st.sampled_from([PodFaultKind.CARD_UNHEALTHY, PodFaultKind.POD_FAILED, PodFaultKind.SUB_HEALTH]),
    st.sampled_from(["", "on", "pause"]),
    st.booleans(),
    st.booleans(),
)
SHAPES = st.builds(
    lambda kind, has_master: (
        kind,
        GangShape(
            SIZE,
            rank_block=3 if kind == "rack" else 0,
            superpods=tuple(rank // 6 for rank in range(SIZE)) if kind in {"superpod", "rack"} else (),
            levels=(2, 6) if kind == "level" else (),
            has_master=has_master,
            is_rack=kind == "rack",
        ),
    ),
    st.sampled_from(sorted(GROUPS)),
    st.booleans(),
)
RULES = st.builds(
    FaultRules,
    scheduling=st.sampled_from(["grace", "force", "off", "invalid", "external-grace"]),
    retries=st.sampled_from([0, 1, 3]),
    strategy=st.sampled_from(["graceExit", "forceExit"]),
    pods_first=st.booleans(),
    limit=st.sampled_from(["", "pod", "job"]),
    has_owner=st.sampled_from([False, False, False, True]),
)
SETTINGS = st.builds(Settings, plan_before_delete=st.booleans(), reference_parity=st.booleans())


class Job:
    """A job, as the ledger and the cluster would show it."""

    def __init__(self, rules: FaultRules, shape: GangShape, settings: Settings) -> None:
        self.rules, self.shape, self.settings = rules, shape, settings
        self.now_ms = 1_000_000
        self.progress = Progress()
        self.steps: list[Wanted] = []
        self.is_over = False

    def happen(self, event: Event) -> None:
        """Let an event happen, and take all steps that are due then."""
        self.now_ms += event.wait_ms
        rules = msgspec.structs.replace(self.rules, process_recovery=event.process)
        if event.process == "pause" and self.rules.process_recovery != "pause":
            self.progress = self.progress._replace(paused_ms=self.now_ms)
        self.rules = rules
        if event.new_pods and set(self.progress.waiting) != set(self.progress.unplaced):
            before = self.progress.waiting
            waiting = {rank: before.get(rank, self.now_ms) for rank in self.progress.unplaced}
            self.progress = self.progress._replace(waiting=waiting)
        faulty = sorted(event.faulty - set(self.progress.unplaced))
        for number in range(20):
            found = self.look(faulty, event.kind)
            taken = next((one for one in found.options if event.is_placed or not one.needs_place), None)
            if taken is None:
                assert not found.again_ms or found.again_ms > self.now_ms
                return
            assert not number or (taken.scope, taken.how) != (self.steps[-1].scope, self.steps[-1].how), "no reason"
            self.take(taken, faulty, is_placed=event.is_placed)
            if self.is_over or taken.how == "mark":
                return
            faulty = []
            assert number < 15, "it does not end"

    def look(self, faulty: list[int], kind: PodFaultKind) -> Escalation:
        faults = tuple(
            PodFault(rank, f"n{rank}", kind, 0, "broken", rank == 0 and self.shape.has_master) for rank in faulty
        )
        counted = kind is not PodFaultKind.POD_FAILED or self.rules.retries > 0
        diagnosis = JobDiagnosis(self.rules, faults if counted else ())
        return escalate(diagnosis, self.shape, self.progress, self.settings, at_ms=self.now_ms, seen_ms=self.now_ms)

    def take(self, wanted: Wanted, faulty: list[int], *, is_placed: bool) -> None:
        self.check(wanted, faulty)
        self.steps.append(wanted)
        unplaced = set(self.progress.unplaced) | set(wanted.ranks)
        left = wanted.retries_left if wanted.retries_left >= 0 else self.progress.retries_left
        step = len(self.steps)
        last = Recovery(
            "ns", "job", "uid", 1, step, wanted.kind, wanted.cause, wanted.scope, wanted.how, list(wanted.ranks),
            list(wanted.faulty), wanted.since_ms,
        )  # fmt: skip
        if wanted.how == "mark":
            self.progress = self.progress._replace(last=last)
            return
        self.is_over = wanted.scope == "job"
        has_places = is_placed and bool(wanted.sought)
        self.progress = self.progress._replace(
            last=last,
            unplaced=frozenset(unplaced - set(wanted.ranks)) if has_places else frozenset(unplaced),
            step_ms=self.now_ms if wanted.how in {"grace", "force"} else self.progress.step_ms,
            freed_ms=self.now_ms,
            retries_left=left,
        )

    def check(self, wanted: Wanted, faulty: list[int]) -> None:
        """What may leave, by the words of the specification alone."""
        rules, before = self.rules, self.progress
        assert not rules.has_owner
        assert rules.scheduling in {"grace", "force", "external-grace"}
        assert (wanted.how == "mark") == (rules.scheduling == "external-grace")
        assert list(wanted.ranks) == sorted(set(wanted.ranks))
        if wanted.how in {"grace", "force", "mark"} and faulty:
            assert set(faulty) <= set(wanted.ranks), "faulty ranks always leave"
        healthy = set(wanted.ranks) - set(faulty) - set(before.unplaced)
        if wanted.how in {"mark", "place"} or rules.limit == "pod":
            assert not healthy
        if not healthy:
            return
        lost = set(faulty) | set(before.unplaced)
        takes_master = self.shape.has_master and 0 in faulty
        if not rules.pods_first and rules.process_recovery != "on":
            return  # the whole job at once
        since_ms = min((ms for rank, ms in before.waiting.items() if rank in before.unplaced), default=0)
        waits_ms = self.now_ms - max(before.step_ms, since_ms)
        blocks = [
            size for size in (self.shape.rank_block, 6 if self.shape.superpods else 0, *self.shape.levels[:1]) if size
        ]
        around = {other for rank in lost for size in blocks for other in range(SIZE) if other // size == rank // size}
        if rules.process_recovery == "on":
            assert takes_master or self.has_grown or (self.shape.is_rack and waits_ms >= 3_000)
        elif not takes_master and not self.has_grown:
            assert faulty == [] or wanted.scope in {"pod", "job"}
            assert waits_ms >= 3_000 or len(lost) == SIZE, "healthy ranks stay until a new pod has waited"
        if wanted.scope != "job":
            assert healthy <= around

    @property
    def has_grown(self) -> bool:
        """Whether a step before was more than pods."""
        last = self.progress.last
        return last is not None and last.scope != "pod" and bool(self.progress.unplaced)


@given(RULES, SHAPES, SETTINGS, st.lists(EVENTS, min_size=1, max_size=8))
def test_what_leaves_only_grows_and_it_ends(
    rules: FaultRules, shape: tuple[str, GangShape], settings: Settings, events: list[Event]
) -> None:
    job = Job(rules, shape[1], settings)
    for event in events:
        job.happen(event)
        if job.is_over:
            break
    order = ["pod", "rank-block", "level", "superpod", "job"]
    for one, other in zip(job.steps, job.steps[1:], strict=False):
        if one.since_ms == other.since_ms and other.how not in {"mark", "place"}:
            assert order.index(one.scope) <= order.index(other.scope)


@given(RULES, SHAPES, SETTINGS, st.frozensets(st.integers(0, SIZE - 1), min_size=1, max_size=4))
def test_retries_are_used_up(
    rules: FaultRules, shape: tuple[str, GangShape], settings: Settings, ranks: frozenset[int]
) -> None:
    settings = msgspec.structs.replace(settings, plan_before_delete=False)
    job = Job(rules, shape[1], settings)
    restarts = 0
    for _ in range(6):
        found = job.look(sorted(ranks), PodFaultKind.POD_FAILED)
        if not found.options or found.options[0].how == "mark":
            break
        restarts += 1
        job.take(found.options[0], sorted(ranks), is_placed=True)
        job.progress = job.progress._replace(unplaced=frozenset())
    acts = rules.scheduling in {"grace", "force"} and not rules.has_owner
    assert restarts == (rules.retries if acts else 0)
