"""Queues over random histories: no record raises one above its limit, nobody sleeps who may start, sums are exact."""

from hypothesis import given
from hypothesis import strategies as st

from berth.core.queues.amounts import in_order
from berth.core.queues.charges import Usage, charge_of_placement
from berth.core.scheduling.quotas import refused_now
from berth.core.scheduling.rules.queues import QUEUES
from berth.core.state.queues.queue_index import QueueIndex
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, ROOT, Queue
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
FIRST = (Queue("lab", capability={NPU: 16 * CHIP}), *(Queue(name, parent="lab") for name in ("a", "b", "c")))
STEPS = st.one_of(
    JOBS,
    JOBS,
    QUEUES_OF_A_TREE,
    st.tuples(st.just("gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("ends"), st.integers(0, 9)),
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


@given(st.lists(st.lists(STEPS, max_size=6), max_size=8), st.sampled_from((1, 2)), st.sampled_from(("skip", "easy")))
def test_queues_hold_over_any_history(story: list[list[object]], level: int, policy: str) -> None:
    cell = Queued(Settings(queues=level, queue_policy=policy, reserve_chips=16, unknown_run_ms=1_000))
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
            if not cell.round():
                break
            cell.see_within_limits(held)
        cell.see_none_sleeps_who_may_start()
