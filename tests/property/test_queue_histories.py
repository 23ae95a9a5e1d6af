"""Queues over random histories: no record raises one above its limit, nobody sleeps who may start, sums are exact."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.queues.admission import Ask, Minima
from berth.core.queues.admission_turns import PODS_MAX, NoTurns, Place
from berth.core.queues.amounts import in_order
from berth.core.queues.charges import Usage, charge_of_placement
from berth.core.queues.turns import LeafTurns
from berth.core.requests.gangs import has_turns
from berth.core.scheduling.admissions import Admissions
from berth.core.scheduling.quotas import refused_now
from berth.core.scheduling.rules.queues import QUEUES
from berth.core.scheduling.rules.search_ground import displaceable
from berth.core.state.cell import State
from berth.core.state.queues.queue_index import QueueIndex
from berth.schemas.facts import JobSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen, WaitingGroup
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, ROOT, Queue
from tests.fuzz.seat import Seat
from tests.support.team_cell import Team

NPU = "huawei.com/Ascend910"
NAMES = ("a", "b", "c", DEFAULT)
AMOUNTS = st.dictionaries(st.sampled_from((NPU, CPU)), st.sampled_from((0, 8, 16, 24)).map(lambda one: one * CHIP))
QUEUES_OF_A_TREE = st.builds(
    Queue,
    name=st.sampled_from((*NAMES, "lab", ROOT)),
    parent=st.sampled_from(("", "lab", "lab", "a", "nowhere")),
    capability=AMOUNTS,
    guarantee=st.one_of(st.just({}), AMOUNTS),
    deserved=st.one_of(st.just({}), AMOUNTS),
    weight=st.integers(1, 3),
    priority=st.integers(0, 1),
    state=st.sampled_from(("", "", "", "Closed")),
    namespaces=st.sampled_from((None, None, ["team"], ["others"])),
    per_namespace=st.one_of(st.just({}), AMOUNTS),
)
JOBS = st.tuples(st.sampled_from((*NAMES, "nowhere")), st.sampled_from((0, 1, 8)), st.sampled_from(("team", "others")))
GROUPS = st.builds(
    WaitingGroup,
    queue=st.sampled_from((*NAMES, "nowhere")),
    minimum=AMOUNTS,
    is_declared=st.booleans(),
    pods=st.sampled_from((1, 2, 6_000)),
    priority=st.integers(0, 2),
    may_displace=st.booleans(),
    created_ms=st.integers(0, 5),
    is_admitted=st.sampled_from((False, False, True)),
)
FIRST = (Queue("lab", capability={NPU: 16 * CHIP}), *(Queue(name, parent="lab") for name in ("a", "b", "c")))
STEPS = st.one_of(
    JOBS,
    JOBS,
    QUEUES_OF_A_TREE,
    st.tuples(st.just("gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("ends"), st.integers(0, 9)),
    GROUPS,
    GROUPS,
    st.tuples(st.just("no group"), st.integers(0, 5)),
)


class Queued(Team):
    """A cell with queues, whose rounds are checked."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(4, settings, shards=(1, 3))

    def taken(self, step: object, number: int) -> None:
        match step:
            case Queue():
                self.fact(f"queue.{step.name}", QueueSeen(step))
            case ("gone", str(name)):
                self.fact(f"queue.{name}", QueueSeen(Queue(name), gone=True))
            case ("ends", int(which)):
                names = sorted(one.name for one in self.seat.state.fold.holdings.values() if not one.ending)
                if names:
                    self.ended(names[which % len(names)])
            case WaitingGroup():
                name, namespace = f"g{step.created_ms}", "others" if step.priority > 1 else "team"
                named = msgspec.structs.replace(step, job=f"j{number + 3}")
                self.fact(f"group.{namespace}.{name}", GroupSeen(namespace, name, f"{namespace}-{name}", waiting=named))
            case ("no group", int(which)):
                self.fact(f"group.team.g{which}", GroupSeen("team", f"g{which}", gone=True))
            case (str(queue), int(chips), str(namespace)):
                self.job(f"j{number}", namespace, chips=chips, queue=queue)
            case _:
                raise AssertionError(step)

    def see_within_limits(self, before: Usage | None) -> None:
        """No queue holds more than before that is above its limit."""
        queues = self.seat.state.queues
        shares = queues.shares()
        if shares is None or before is None or before.tree is not shares.tree:
            return
        usage = queues.usage(shares.tree)
        for name, limits in shares.limits.items():
            for dimension in in_order(limits):
                held = usage.held(name, dimension)
                assert held <= max(limits[dimension], before.held(name, dimension)), (name, dimension)

    def see_exact(self) -> None:
        """The sums are those of an index that is made anew."""
        state = self.seat.state
        tree = state.queues.tree()
        if tree is None:
            return
        again = QueueIndex(state.fold, state.table)
        again.declared = dict(state.queues.declared)
        made = again.tree()
        assert made is not None
        mine, fresh = state.queues.usage(tree), again.usage(made)
        for name in (*tree.queues, ROOT):
            for dimension in (NPU, CPU):
                assert mine.held(name, dimension) == fresh.held(name, dimension), (name, dimension)
                assert mine.leaving(name, dimension) == fresh.leaving(name, dimension), (name, dimension)

    def see_the_same_from_a_snapshot(self) -> None:
        """Whoever begins at a snapshot finds the same admissions due."""
        other = Seat.loaded(self.seat.snapshot())
        found = [Admissions(seat.state, seat.scheduler.queue).due() for seat in (self.seat, other)]
        assert found[0] == found[1]

    def lines(self) -> tuple[dict[str, list[tuple[Place, Ask, int, bool]]], Counter[str]]:
        """All that wait by line, each with its pods and whether it is admitted; and pods of the admitted by queue."""
        state, groups = self.seat.state, self.seat.state.waiting_groups
        requested = {key for key, job in state.jobs.items() if not is_over(state, job)}
        found: list[tuple[Place, Ask, int, bool]] = []
        for gang in self.seat.scheduler.queue.gangs():
            place = (gang.order[0], 0, gang.order[1], gang.uid, "")
            found.append((place, Ask(gang.queue, gang.charge, gang.namespace), gang.pods, True))
        for key, counted in groups.counted.items():
            if groups.request_of(key) not in requested:
                ask = Ask(counted.queue, counted.minimum, counted.namespace)
                found.append((counted.place, ask, counted.pods, True))
        for asks, places in groups.classes.items():
            left = [place for place in places if groups.request_of((place[3], place[4])) not in requested]
            found += ((place, asks.ask, asks.pods, False) for place in left)
        lines: dict[str, list[tuple[Place, Ask, int, bool]]] = {}
        pods: Counter[str] = Counter()
        for one in found:
            lines.setdefault(one[1].queue if has_turns(state.fold.settings) else "", []).append(one)
            pods[one[1].queue] += one[2] if one[3] else 0
        return lines, pods

    def see_none_waits_who_is_to_be_admitted(self) -> None:
        """None is admitted any more, asked one by one, although nothing is due."""
        state, queue = self.seat.state, self.seat.scheduler.queue
        assert not self.seat.scheduler.has_work
        assert Admissions(state, queue).due() == []
        shares = state.queues.shares()
        if shares is None:
            return
        usage = state.queues.usage(shares.tree)
        minima = Minima(shares, usage.fork(), lambda: displaceable(state))
        turns = LeafTurns(shares, usage) if has_turns(state.fold.settings) else NoTurns()
        lines, pods = self.lines()
        turns.open(lines)
        waiting = {name: sorted(line, key=lambda one: one[0]) for name, line in lines.items()}
        while (name := turns.next()) is not None:
            if not waiting[name]:
                turns.close(name)
                continue
            place, ask, count, is_in = waiting[name].pop(0)
            if is_in:
                minima.admit(ask.queue, ask.minimum, namespace=ask.namespace)
                turns.took(name, ask.minimum)
                continue
            is_many = pods[ask.queue] and pods[ask.queue] + count > PODS_MAX
            assert is_many or minima.refusal(ask) is not None, f"{place} of {ask} waits"

    def see_none_sleeps_who_may_start(self) -> None:
        """Whoever a queue refused and nothing wakes is still refused."""
        state, queue = self.seat.state, self.seat.scheduler.queue
        shares = state.queues.shares()
        for gang in queue.gangs():
            record = state.fold.gangs.get(gang.uid)
            if record is None or record.refusal is None or record.refusal.rule != QUEUES:
                continue
            assert shares is not None, f"{gang.name} sleeps where no queues are"
            found = refused_now(state, gang)
            assert found is not None, f"{gang.name} of {gang.queue} sleeps and may start"


def is_over(state: State, job: JobSeen) -> bool:
    gang = state.fold.gangs.get(job.uid)
    return job.state != "accepted" or (gang is not None and gang.is_over)


@given(
    st.lists(st.lists(STEPS, max_size=6), max_size=8),
    st.sampled_from((1, 2)),
    st.sampled_from(("skip", "easy")),
    st.sampled_from((0, 0, 2)),
)
def test_queues_hold_over_any_history(story: list[list[object]], level: int, policy: str, preempt: int) -> None:
    settings = Settings(queues=level, queue_policy=policy, reserve_chips=16, unknown_run_ms=1_000, preempt=preempt)
    cell = Queued(settings)
    for queue in FIRST:
        cell.taken(queue, 0)
    number = 0
    for turn in story:
        for step in turn:
            number += 1
            cell.taken(step, number)
        for _ in range(12):
            queues = cell.seat.state.queues
            tree = queues.tree()
            cell.see_exact()
            held = None
            if tree is not None:
                held = Usage(tree)
                for one in cell.seat.state.fold.holdings.values():
                    if not one.ending:
                        held.charge(one.queue or DEFAULT, charge_of_placement(one.placement, one.gone))
            cell.see_the_same_from_a_snapshot()
            head = cell.seat.state.fold.head
            cell.round()
            if cell.seat.state.fold.head == head:
                cell.see_none_waits_who_is_to_be_admitted()
                break
            cell.see_within_limits(held)
        cell.see_none_sleeps_who_may_start()
