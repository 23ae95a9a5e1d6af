"""Gangs with many different tasks: no other gang waits behind them, and a round goes on without those that are late."""

import pytest

from berth.core.explain.refusal_text import sentence
from berth.core.placement.round_demand import ROUND_WORK_MAX, NeedMoreError, first_counts, more_counts, work_of_gang
from berth.core.scheduling.following import opening_for
from berth.core.scheduling.turn import Opening
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Verdict
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell

TASKS = 300
NODES = 50


def many_tasks(name: str, *, first: int = 0, tasks: int = TASKS) -> JobRequest:
    """A job whose tasks all differ."""
    cpus = range(first + 1, first + tasks + 1)
    return a_job(name, tasks=[Task(f"t{cpu}", 1, 1, cpu_milli=cpu) for cpu in cpus])


def a_cell(**changes: str) -> CoreCell:
    return CoreCell([a_node(f"n{n:02}") for n in range(NODES)], **changes)  # type: ignore[arg-type]  # fields


def opened(cell: CoreCell, **bounds: int) -> Opening:
    opening = cell.scheduler.open(cell.now_ms, **bounds).opening
    assert opening is not None
    return opening


def decided(cell: CoreCell, opening: Opening) -> Round:
    found = cell.scheduler.decide(opening)
    cell.scheduler.adopt(found, cell.folded(found.round))
    return found.round


def verdict_of(record: Round, name: str) -> Verdict:
    (found,) = [one for one in record.verdicts if one.name == name]
    return found


def test_a_light_gang_waits_behind_no_heavy_ones() -> None:
    cell = a_cell()
    cell.ask(*(many_tasks(f"many-{n}", first=TASKS * n) for n in range(40)), a_job("other"))
    opening = opened(cell)
    names = [gang.name for gang in opening.gangs]
    assert names[-1] == "other", "decided in queue order"
    assert len(names) < 20, "heavy ones up to the bound of the work"
    assert names[0] == "many-0"


def test_in_strict_order_no_gang_passes_a_heavy_one() -> None:
    cell = a_cell(queue_policy="fifo")
    cell.ask(*(many_tasks(f"many-{n}", first=TASKS * n) for n in range(40)), a_job("other"))
    names = [gang.name for gang in opened(cell).gangs]
    assert names == [f"many-{n}" for n in range(len(names))]


@pytest.mark.parametrize("work_max", [0, ROUND_WORK_MAX // 4])
def test_a_round_takes_less_when_it_is_bounded_to_less(work_max: int) -> None:
    cell = a_cell()
    cell.ask(*(many_tasks(f"many-{n}", first=TASKS * n) for n in range(40)))
    opening = opened(cell, work_max=work_max)
    work = sum(work_of_gang(gang.request_class, NODES) for gang in opening.gangs)
    assert ROUND_WORK_MAX // 16 < work < 4 * (work_max or ROUND_WORK_MAX)
    assert decided(cell, opening).work_max == work_max


def test_a_gang_above_the_bound_is_taken_alone_and_its_shapes_are_heavy() -> None:
    cell = a_cell()
    cell.ask(many_tasks("many", tasks=3_000), a_job("other"))
    opening = opened(cell, work_max=ROUND_WORK_MAX // 8)
    assert [gang.name for gang in opening.gangs] == ["many", "other"]
    assert len(opening.asks) == 3_001
    assert len(opening.heavy) == 3_000
    assert opening.heavy < opening.asks.keys()


def test_a_shape_that_others_need_too_is_not_heavy() -> None:
    cell = a_cell()
    request = many_tasks("many")
    cell.ask(request, a_job("other", tasks=[Task("t", 1, 1, cpu_milli=1)]), a_job("many-pods", replicas=TASKS))
    opening = opened(cell)
    heavy = {shape for gang in opening.gangs if gang.name == "many" for shape, _ in gang.request_class}
    shared = {shape for gang in opening.gangs if gang.name != "many" for shape, _ in gang.request_class}
    assert opening.heavy == heavy - shared


def test_a_late_gang_is_left_out_by_name_and_the_others_are_decided() -> None:
    cell, twin = a_cell(), a_cell()
    for one in (cell, twin):
        one.ask(many_tasks("many"), a_job("other"))
    opening = cell.scheduler.leave_out(opened(cell), ["uid-many", "uid-other"])
    assert len(opening.asks) == 1
    record = decided(cell, opening)
    assert verdict_of(record, "other").placement is not None
    refusal = verdict_of(record, "many").refusal
    assert refusal is not None
    assert (refusal.code, refusal.shapes, refusal.retry_ms) == ("late", TASKS, cell.now_ms + 1_000)
    assert not refusal.missing_shards
    assert "its 300 different tasks take longer to score than a round waits" in sentence(refusal)
    again = opening_for(twin.scheduler, record)
    assert again is not None
    assert twin.scheduler.decide(again).round == record, "a replay leaves out the same, without asking for time"


def test_a_late_gang_is_tried_again_after_ever_longer_pauses_whatever_changes() -> None:
    cell = a_cell()
    cell.ask(many_tasks("many"))
    pauses = []
    for _ in range(8):
        opening = cell.scheduler.leave_out(opened(cell), ["uid-many"])
        refusal = decided(cell, opening).verdicts[0].refusal
        assert refusal is not None
        pauses.append(refusal.retry_ms - cell.now_ms)
        cell.now_ms = refusal.retry_ms - 1
        cell.nodes["more"] = a_node("more", cpu_milli=cell.now_ms)
        cell.publish()
        assert cell.scheduler.open(cell.now_ms).opening is None
        assert cell.scheduler.next_due_ms == refusal.retry_ms
        cell.now_ms = refusal.retry_ms
    assert pauses == [1_000, 2_000, 4_000, 8_000, *[10_000] * 4]
    assert verdict_of(decided(cell, opened(cell)), "many").placement is not None


@pytest.mark.parametrize("policy", ["skip", "easy", "conservative"])
def test_a_heavy_gang_without_room_pauses_and_says_why(policy: str) -> None:
    """It has no reservation either, which would be planned anew in each round."""
    cell = a_cell(queue_policy=policy)
    cell.place(*(a_job(f"full-{n}", chips=8) for n in range(NODES)))
    cell.ask(many_tasks("many"))
    pauses = []
    for _ in range(5):
        refusal = decided(cell, opened(cell)).verdicts[0].refusal
        assert refusal is not None
        assert (refusal.code, refusal.start_ms) == ("no-room", 0)
        pauses.append(refusal.retry_ms - cell.now_ms)
        cell.now_ms = refusal.retry_ms
    assert pauses == [1_000, 2_000, 4_000, 8_000, 10_000]


def test_a_refused_gang_that_is_not_heavy_does_not_pause() -> None:
    cell = a_cell()
    cell.place(*(a_job(f"full-{n}", chips=8) for n in range(NODES)))
    assert cell.refuse(many_tasks("few", tasks=10)).retry_ms == 0


def test_of_many_shapes_few_candidates_are_asked_for_at_first_and_then_more_of_all() -> None:
    cell = a_cell()
    cell.ask(many_tasks("many", tasks=2_000))
    opening = opened(cell)
    needs = opening.needs
    assert set(needs.values()) == {2_000}
    asked = first_counts(needs)
    assert sum(asked.values()) < 600_000
    shape = next(iter(asked))
    more = more_counts(asked, needs, NeedMoreError(shape, 1))
    assert all(more[one] == min(4 * count, 2_000) for one, count in asked.items())
    whole = dict(needs)
    assert more_counts(whole, needs, NeedMoreError(shape, 4_001)) == whole | {shape: 4_001}


def test_a_pause_that_is_over_when_a_leader_resumes_is_over_for_all_who_follow() -> None:
    """As for a reader that begins there."""
    cell = a_cell()
    cell.ask(many_tasks("many"))
    opening = opened(cell)
    decided(cell, cell.scheduler.leave_out(opening, ["uid-many"]))
    cell.scheduler.sync()
    assert not len(cell.scheduler.queue)
    fold = cell.state.fold
    epoch = Epoch(
        2, fold.head, cell.state.facts_seq, cell.now_ms + 1_000, "b", fold.settings, resumes=True, rules=[*fold.rules]
    )
    cell.scheduler.begin(cell.folded(epoch).changes, resumes=True)
    cell.scheduler.sync()
    assert [gang.name for gang in cell.scheduler.queue.gangs()] == ["many"]
