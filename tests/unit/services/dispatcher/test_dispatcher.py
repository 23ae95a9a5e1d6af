"""The dispatcher's turn on a whole cell in memory.

Longer than 400 lines because every test is a story of one cell, and the stories share their few words.
"""

import pytest

from berth.core.explain.refusal_text import sentence
from berth.core.state.cell import State
from berth.runtime.bus.port import Stored
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import body_of, decode, encode, open_envelope
from berth.schemas.facts import OutcomeSeen, OutcomeState, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.nodes import NodeCondition
from berth.schemas.status import DeadLetter, JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DispatcherConfig
from tests.support.cells import Cell, a_job, a_node

CLASSES = 50
GANGS = 10_000


async def rounds(cell: Cell) -> list[Round]:
    envelopes = [open_envelope(data) for data in await cell.ledger()]
    return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]


async def verdicts(cell: Cell, name: str) -> list[Verdict]:
    return [verdict for record in await rounds(cell) for verdict in record.verdicts if verdict.name == name]


async def phase(cell: Cell, name: str) -> str:
    status = await cell.status(name)
    return status.phase if status is not None else ""


async def status(cell: Cell, name: str) -> JobStatus:
    found = await cell.status(name)
    assert found is not None
    return found


async def letters(cell: Cell) -> list[DeadLetter]:
    stored: list[Stored] = await cell.user.read(StreamName.DEAD)
    return [decode(message.data, DeadLetter) for message in stored]


async def outcome(cell: Cell, name: str, state: OutcomeState, *, attempt: int = 1, bound: int = 0) -> None:
    fact = OutcomeSeen("default", name, f"uid-{name}", attempt, state, bound=bound)
    await cell.user.publish(cell.user.subjects.fact_outcome("default", name), encode(fact))


def a_labelled_job(name: str, number: int, *, chips: int = 8) -> JobRequest:
    """A job for nodes with the label ``pool=p<number>``."""
    job = a_job(name, chips=chips)
    return a_job(name, chips=chips, node_selector=job.node_selector | {"pool": f"p{number}"})


def a_pool_node(number: int) -> dict[str, str]:
    return a_node("x").labels | {"pool": f"p{number}"}


async def test_an_event_scores_again_the_one_class_that_it_helps_among_ten_thousand_waiting_gangs() -> None:
    cell = await Cell(round_gangs_max=4096, round_bytes_max=4_000_000).open()
    await cell.nodes([a_node(f"n{number:02d}", labels=a_pool_node(number), cordoned=True) for number in range(CLASSES)])
    await cell.submit(*(a_labelled_job(f"job{number}", number % CLASSES) for number in range(GANGS)))
    for _ in range(40):
        await cell.turns()
        if len(await cell.user.read(StreamName.STATUS)) == GANGS and not cell.dispatcher.queue.has_work:
            break
    scatter, queue = cell.dispatcher.scatter, cell.dispatcher.queue
    assert (len(queue), len(queue.sleeping())) == (GANGS, CLASSES)
    asked, ledger, woken = scatter.shapes_asked, len(await cell.ledger()), queue.woken

    await cell.turns(3)  # no event, no work
    assert (scatter.shapes_asked, len(await cell.ledger())) == (asked, ledger)

    changed = [a_node(f"n{number:02d}", labels=a_pool_node(number), cordoned=number != 17) for number in range(CLASSES)]
    await cell.nodes(changed)
    await cell.turns()
    assert (scatter.shapes_asked - asked, queue.woken - woken) == (1, 1)
    placed = [verdict for verdict in (await rounds(cell))[-1].verdicts if verdict.placement is not None]
    assert [verdict.name for verdict in placed] == ["job17"]
    await cell.turns(3)
    assert len(queue.sleeping()) == CLASSES
    assert scatter.shapes_asked - asked == 1
    assert len(await cell.ledger()) == ledger + 1
    await cell.close()


async def test_what_does_not_help_a_class_lets_it_sleep() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("big", chips=8, replicas=3), a_job("small", chips=1))
    await cell.turns(2)
    asked = cell.dispatcher.scatter.shapes_asked
    await cell.health("bucket-all", [NodeCondition("a", unhealthy=2)])
    await cell.turns(2)
    assert cell.dispatcher.scatter.shapes_asked == asked
    await cell.close()


async def test_a_node_whose_numbers_agree_again_wakes_what_waits_for_it() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a", allocatable=7)])
    await cell.submit(a_job("waits", chips=4))
    await cell.turns(2)
    assert (await status(cell, "waits")).sentence.endswith("1 reports more free chips than Kubernetes counts")
    await cell.health("bucket-all", [NodeCondition("a", unhealthy=128)])
    await cell.turns(2)
    assert await phase(cell, "waits") == "placed"
    await cell.close()


@pytest.mark.parametrize("shards", [0, 2])
async def test_where_health_is_told_a_node_of_which_nobody_speaks_takes_no_work(shards: int) -> None:
    cell = await Cell(shards=shards, needs_health=True).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("waits", chips=8))
    await cell.turns(2)
    assert (await status(cell, "waits")).sentence.endswith("2 have no health report")
    await cell.health("bucket-all", [NodeCondition("b")])
    await cell.turns(2)
    placement = (await status(cell, "waits")).placement
    assert placement is not None
    assert placement.names() == ["b"]
    await cell.submit(a_job("next", chips=8))
    await cell.turns(2)
    await cell.health("bucket-all", [NodeCondition("a")])  # it speaks of b no more
    await cell.turns(2)
    assert await phase(cell, "next") == "placed"
    await cell.close()


async def test_chips_that_a_node_withholds_are_not_given_and_come_back() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.health("bucket-all", [NodeCondition("a", withheld=0b11)])
    await cell.submit(a_job("all", chips=8), a_job("six", chips=6))
    await cell.turns(2)
    placement = (await status(cell, "six")).placement
    assert placement is not None
    assert placement.chips_by_rank() == [(2, 3, 4, 5, 6, 7)]
    assert (await status(cell, "all")).sentence.endswith("1 has fewer than 8 free chips")
    await cell.health("bucket-all", [])
    await cell.submit(a_job("two", chips=2))
    await cell.turns(2)
    assert await phase(cell, "two") == "placed"
    await cell.close()


async def test_what_is_no_request_lands_in_dead_with_the_reason_and_the_next_is_judged() -> None:
    cell = await Cell().open()
    user = cell.user
    await cell.nodes([a_node("a")])
    await user.publish(user.subjects.intake_request("default", "rubbish"), b"\xff\x00 no message")
    await user.publish(user.subjects.intake_request("default", "other"), encode(a_job("one")))
    await user.publish(
        user.subjects.intake_request("default", "kind"),
        encode(Epoch(9, 0, 0, 0, "x", cell.config.decisions.to_settings())),
    )
    await cell.submit(a_job("good"))
    await cell.turns(3)
    found = await letters(cell)
    assert [(letter.stream, letter.sequence, letter.subject.rsplit(".", 1)[1]) for letter in found] == [
        ("INTAKE", 1, "rubbish"),
        ("INTAKE", 2, "other"),
        ("INTAKE", 3, "kind"),
    ]
    assert "not an envelope" in found[0].reason
    assert "default/one" in found[1].reason
    assert "default.other" in found[1].reason
    assert "ledger.epoch" in found[2].reason
    assert found[0].data == b"\xff\x00 no message"
    assert await phase(cell, "good") == "placed"
    assert set(cell.dispatcher.state.jobs) == {("default", "good")}
    await cell.close()


async def test_a_damaged_fact_lands_in_dead_and_later_facts_are_applied() -> None:
    cell = await Cell(shards=2).open()
    user = cell.user
    await user.publish(user.subjects.fact_node("bucket-all"), b"damaged")
    await user.publish(
        user.subjects.fact_pod("default", "x"),
        encode(PodsSeen("default", "x", "u", 1, pack([0], 4), pack_names(["a"]), pack([3], 4), b"\x01", pack([1], 8))),
    )
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("good"))
    await cell.turns(3)
    found = await letters(cell)
    assert [(letter.stream, letter.sequence) for letter in found] == [("FACTS", 1), ("FACTS", 2)]
    assert "node_index" in found[1].reason
    assert await phase(cell, "good") == "placed"
    await cell.close()


async def test_the_nodes_of_a_shard_that_does_not_answer_are_out_and_tried_again_later() -> None:
    cell = await Cell(shards=1, shard_retry_ms=1_000).open()
    await cell.buses[-1].close()  # the shard is gone
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("waits"))
    await cell.turns(2)
    refused = (await status(cell, "waits")).refusal
    assert refused is not None
    assert refused.missing_shards == [0]
    assert sentence(refused) == "0 of 1 node fits: 1 belongs to a scorer that did not answer"
    assert (await rounds(cell))[-1].missing == [0]

    await cell.start_shard(0)
    before = len(await cell.ledger())
    await cell.turns(2)
    assert len(await cell.ledger()) == before, "not before its time"
    cell.clock.advance(1.5)
    await cell.turns(3)
    assert await phase(cell, "waits") == "placed"
    await cell.close()


async def test_gangs_are_placed_by_priority_and_then_by_age_and_what_does_not_fit_is_passed_over() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(
        a_job("low", chips=4),
        a_job("large", chips=8, replicas=2, priority=9),
        a_job("high", chips=4, priority=5),
        a_job("late", chips=4),
    )
    await cell.turns(2)
    found = [verdict for record in await rounds(cell) for verdict in record.verdicts]
    assert [(verdict.name, verdict.placement is not None) for verdict in found] == [
        ("large", False),
        ("high", True),
        ("low", True),
        ("late", False),
    ]
    await cell.close()


async def test_an_update_of_a_waiting_job_keeps_its_place_in_the_queue() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("first", chips=8), a_job("second", chips=8))
    await cell.turns(2)
    await cell.submit(a_job("first", chips=4))
    await cell.turns(2)
    await cell.nodes([a_node("a")])
    await cell.turns(2)
    assert (await phase(cell, "first"), await phase(cell, "second")) == ("placed", "waiting")
    await cell.close()


async def test_a_gang_that_cannot_be_bound_is_placed_anew_until_its_attempts_are_used_up() -> None:
    cell = await Cell(attempts_max=3).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("sick", chips=8))
    await cell.turns(2)
    for attempt in (1, 2, 3):
        assert await phase(cell, "sick") == "placed"
        assert (await status(cell, "sick")).attempt == attempt
        await outcome(cell, "sick", "failed", attempt=attempt)
        await cell.turns(3)
        cell.clock.advance(60)
        await cell.turns(3)
    assert await phase(cell, "sick") == "failed"
    assert [verdict.attempt for verdict in await verdicts(cell, "sick")] == [1, 2, 3]
    assert not cell.dispatcher.state.fold.holdings
    await cell.close()


async def test_a_gang_that_cannot_be_bound_waits_before_it_is_placed_anew_and_others_do_not() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("sick", chips=8))
    await cell.turns(2)
    await outcome(cell, "sick", "failed")
    await cell.turns(3)
    assert await phase(cell, "sick") == "waiting"
    assert cell.dispatcher.scheduler.next_due_ms == cell.clock.now_ms() + 1_000
    await cell.submit(a_job("well", chips=4))
    await cell.turns(2)
    assert await phase(cell, "well") == "placed"
    await cell.submit(a_job("later", chips=8))
    cell.clock.advance(1)
    await cell.turns(2)
    assert cell.dispatcher.scheduler.queue.class_of("uid-sick") is not None
    await cell.close()


async def test_pods_that_were_bound_are_evicted_before_the_gang_is_placed_anew() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("half", chips=4, replicas=2))
    await cell.turns(2)
    await outcome(cell, "half", "failed", bound=1)
    await cell.turns(2)
    assert await phase(cell, "half") == "ending"
    assert int(cell.dispatcher.state.table.free[0]) == 0
    await outcome(cell, "half", "evicted")
    await cell.turns(3)
    assert (await status(cell, "half")).attempt == 2
    await cell.close()


async def test_a_cancelled_job_that_waits_is_cancelled_at_once_and_one_that_runs_after_its_pods_have_gone() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("runs", chips=8), a_job("waits", chips=8))
    await cell.turns(2)
    await cell.cancel("waits")
    await cell.cancel("runs")
    await cell.turns(2)
    assert (await phase(cell, "waits"), await phase(cell, "runs")) == ("cancelled", "ending")
    await cell.pods("runs", PodPhase.TERMINATING)
    await cell.turns(2)
    assert await phase(cell, "runs") == "ending"
    assert int(cell.dispatcher.state.table.releasing[0]) == 255
    await cell.pods("runs", PodPhase.GONE)
    await cell.turns(2)
    assert await phase(cell, "runs") == "cancelled"
    assert int(cell.dispatcher.state.table.free[0]) == 255
    await cell.close()


async def test_a_job_cancelled_and_asked_for_anew_in_one_breath_is_placed_once() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("again", chips=8))
    await cell.turns(2)
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.cancel("again")
    await cell.submit(a_job("again", chips=8, uid="uid-second"))
    await cell.turns(3)
    assert list(cell.dispatcher.state.fold.holdings) == [("uid-second", 1)]
    await cell.close()


async def test_a_job_that_is_over_gives_up_its_name_after_the_time_and_the_name_can_be_used_again() -> None:
    cell = await Cell(shards=2, tombstone_after_ms=60_000).open()
    await cell.nodes([a_node("a")])
    for life in range(3):
        await cell.submit(a_job("same", chips=8))
        await cell.turns(3)
        assert await phase(cell, "same") == "placed", life
        await cell.pods("same", PodPhase.SUCCEEDED)
        await cell.turns(3)
        assert await phase(cell, "same") == "succeeded", life
        cell.clock.advance(59)
        await cell.turns(3)
        assert ("default", "same") in cell.dispatcher.state.jobs
        cell.clock.advance(2)
        await cell.turns(3)
        assert ("default", "same") not in cell.dispatcher.state.jobs
        assert not cell.dispatcher.state.fold.gangs
    assert not any(shard.late for shard in cell.shards)
    await cell.close()


async def test_a_name_used_again_is_known_after_a_restart_without_a_newer_snapshot() -> None:
    cell = await Cell(shards=1, tombstone_after_ms=1_000).open()
    await cell.nodes([a_node("a")])
    for _ in range(2):
        await cell.submit(a_job("same", chips=8))
        await cell.turns(3)
        await cell.pods("same", PodPhase.SUCCEEDED)
        await cell.turns(3)
        cell.clock.advance(5)
        await cell.turns(3)
    await cell.submit(a_job("same", chips=8))
    await cell.turns(1)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(3)
    assert await phase(cell, "same") == "placed"
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(3)
    assert await phase(cell, "same") == "placed"
    await cell.close()


async def test_two_jobs_cannot_have_one_uid() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("one", chips=1, uid="u"), a_job("two", chips=2, uid="u"))
    await cell.turns(3)
    assert (await phase(cell, "one"), await phase(cell, "two")) == ("placed", "rejected")
    refusal = (await status(cell, "two")).refusal
    assert refusal is not None
    assert (refusal.field, refusal.value) == ("uid", "u")
    await cell.close()


async def test_another_setting_begins_an_epoch_in_which_every_gang_is_tried_anew() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a", "module910x8")])
    await cell.submit(a_job("waits", chips=8, replicas=2, product="module910x8"))
    await cell.submit(a_job("odd", chips=4, replicas=2, product="module910x8"))
    await cell.turns(3)
    assert (await phase(cell, "waits"), await phase(cell, "odd")) == ("waiting", "rejected")
    before = len(await verdicts(cell, "waits"))
    await cell.dispatcher.stop()
    cell.config = Cell(strict_job_shape=False, server=cell.server).config
    await cell.start_dispatcher()
    await cell.turns(2)
    epochs = [open_envelope(data) for data in await cell.ledger()]
    settings = [body_of(envelope, Epoch).settings for envelope in epochs if envelope.kind == Epoch.KIND]
    assert [setting.strict_job_shape for setting in settings] == [True, False]
    assert len(await verdicts(cell, "waits")) == before + 1
    await cell.submit(a_job("even", chips=4, replicas=2, product="module910x8"))
    await cell.turns(2)
    assert await phase(cell, "even") == "placed"
    await cell.close()


async def test_settings_that_forbid_a_waiting_job_turn_it_away_for_good() -> None:
    cell = await Cell(strict_job_shape=False).open()
    await cell.submit(a_job("odd", chips=4, replicas=2, product="module910x8"))
    await cell.turns(2)
    await cell.dispatcher.stop()
    cell.config = Cell(server=cell.server).config
    await cell.start_dispatcher()
    await cell.turns(2)
    found = await status(cell, "odd")
    assert found.phase == "failed"
    assert "strict_job_shape" in found.sentence
    await cell.close()


async def test_a_start_from_a_snapshot_on_a_pruned_ledger_equals_no_restart() -> None:
    ledgers = []
    for restart in (False, True):
        cell = await Cell().open()
        await cell.nodes([a_node("a"), a_node("b")])
        await cell.submit(*(a_job(f"job{number}", chips=4) for number in range(6)))
        await cell.turns(3)
        await cell.pods("job0", PodPhase.SUCCEEDED)
        await cell.turns(2)
        if restart:
            state: State = cell.dispatcher.state
            await cell.dispatcher.snapshots.write()
            await cell.user.purge(StreamName.LEDGER, keep_from_seq=state.fold.head)
            await cell.dispatcher.stop()
            await cell.start_dispatcher()
            await cell.turns(2)
        await cell.submit(a_job("later", chips=2))
        await cell.pods("job1", PodPhase.SUCCEEDED)
        await cell.turns(4)
        fold = cell.dispatcher.state.fold
        ledgers.append({key: (item.placement, item.attempt) for key, item in sorted(fold.holdings.items())})
        assert len(cell.dispatcher.queue) == sum(gang.phase == "waiting" for gang in fold.gangs.values())
        await cell.close()
    assert ledgers[0] == ledgers[1]


@pytest.mark.parametrize("fault", ["lose_messages", "lose_answers"])
async def test_a_verdict_that_may_not_have_been_stored_loses_no_request(fault: str) -> None:
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number}") for number in range(4)])
    await cell.turns()
    await cell.submit(*(a_job(f"job{number}", chips=8) for number in range(4)))
    await cell.settle()
    setattr(cell.server, fault, 1)  # the verdict on the first request
    await cell.dispatcher.turn()
    assert cell.dispatcher.intake.needs_restart
    await cell.turns(4)
    assert [await phase(cell, f"job{number}") for number in range(4)] == ["placed"] * 4
    accepted = [cell.dispatcher.state.jobs["default", f"job{number}"].accepted_seq for number in range(4)]
    assert accepted == [1, 2, 3, 4]
    assert not await cell.dead()
    await cell.close()


async def test_a_record_whose_answer_was_lost_is_found_in_the_ledger_and_not_decided_again() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("once", chips=8))
    await cell.settle()
    await cell.dispatcher.intake.step(cell.dispatcher.state.fold.settings, batch_max=10)
    await cell.settle()
    cell.server.lose_answers = 1
    await cell.turns(3)
    assert len(await verdicts(cell, "once")) == 1
    assert await phase(cell, "once") == "placed"
    await cell.close()


async def test_pods_of_another_scheduler_are_adopted_before_anything_is_placed() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.turns()
    fact = PodsSeen(
        "default", "alien", "u", 0, pack([0, 1], 4), pack_names(["a"]), pack([0, 0], 4), b"\x01\x03", pack([3, 12], 8),
        foreign=True,
    )  # fmt: skip
    await cell.user.publish(cell.user.subjects.fact_pod("default", "alien"), encode(fact))
    await cell.submit(a_job("mine", chips=4))
    await cell.turns(3)
    held = {uid: holding.placement.chips_by_rank() for (uid, _), holding in cell.dispatcher.state.fold.holdings.items()}
    assert held == {"u": [(0, 1), ()], "uid-mine": [(2, 3, 4, 5)]}, "a pod that has ended holds nothing"
    await cell.close()


async def test_a_soft_share_job_that_asks_several_chips_a_pod_shares_one() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("s", "soft-share")])
    labels = {f"huawei.com/scheduler.softShareDev.{name}": value for name, value in QUOTA.items()}
    await cell.submit(a_job("shares", chips=2, replicas=3, product="soft-share", labels=labels))
    await cell.turns(2)
    placement = (await status(cell, "shares")).placement
    assert placement is not None
    assert placement.chips_by_rank() == [(0,), (0,), (0,)]
    await cell.close()


QUOTA = {"aicoreQuota": "30", "hbmQuota": "1024", "policy": "elastic"}


async def test_a_task_without_chips_that_finds_no_room_makes_the_job_wait_for_room() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a", "module910a3x16")])
    tasks = [Task("worker", 1, 2), Task("scheduler", 1, 0, cpu_milli=10**9)]
    await cell.submit(a_job("mixed", product="module910a3x16", tasks=tasks))
    await cell.turns(2)
    refusal = (await status(cell, "mixed")).refusal
    assert refusal is not None
    assert (refusal.code, refusal.task, refusal.pods_have) == ("no-room", "scheduler", 1)
    await cell.close()


async def test_a_job_cancelled_and_asked_for_anew_does_not_wait_any_more_though_both_facts_come_at_once() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("again", chips=8))
    await cell.turns(2)
    await cell.cancel("again")
    await cell.submit(a_job("again", chips=8, uid="uid-second"))
    await cell.settle()
    await cell.dispatcher.intake.step(cell.dispatcher.state.fold.settings, batch_max=10)
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.turns(3)
    assert list(cell.dispatcher.state.fold.holdings) == [("uid-second", 1)]
    assert len(cell.dispatcher.queue) == 0
    await cell.close()


async def test_a_job_is_not_placed_between_its_cancelling_and_the_fact_that_says_so() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("gone", chips=8))
    await cell.turns(2)
    await cell.nodes([a_node("a")])
    await cell.settle()
    await cell.cancel("gone")
    await cell.turns(3)
    assert not cell.dispatcher.state.fold.holdings
    assert await phase(cell, "gone") == "cancelled"
    await cell.close()


async def test_a_cancelled_job_keeps_its_uid_while_the_verdicts_are_on_their_way() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("one", uid="u"))
    await cell.cancel("one")
    await cell.submit(a_job("two", uid="u"))
    await cell.turns(3)
    assert (await phase(cell, "one"), await phase(cell, "two")) == ("cancelled", "rejected")
    await cell.close()


async def test_a_request_without_a_uid_does_not_share_one_that_another_job_took() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("one", uid="intake-2"), a_job("two", uid=""))
    await cell.turns(3)
    assert (await phase(cell, "one"), await phase(cell, "two")) == ("placed", "rejected")
    await cell.close()


async def test_a_request_whose_verdict_no_message_can_hold_is_a_dead_letter() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    large = a_job("large", annotations={"note": "x" * 100_000})
    cell.server.payload_limit_bytes = len(encode(large)) + 8
    await cell.submit(large, a_job("small"))
    await cell.turns(5)
    assert [letter.subject for letter in await letters(cell)] == [cell.user.subjects.intake_request("default", "large")]
    assert (await phase(cell, "large"), await phase(cell, "small")) == ("", "placed")
    await cell.close()


async def test_a_node_with_too_many_free_chips_for_a_form_is_looked_at_again_when_some_are_taken() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("half", chips=2, annotations={"huawei.com/schedule_policy": "chip4-node4"}))
    await cell.turns(3)
    assert await phase(cell, "half") == "waiting"
    await cell.submit(a_job("other", chips=4))
    await cell.turns(4)
    assert (await phase(cell, "other"), await phase(cell, "half")) == ("placed", "placed")
    await cell.close()


async def test_a_job_larger_than_all_nodes_that_it_may_use_is_told_how_many_chips_those_have() -> None:
    cell = await Cell().open()
    others = [a_node(f"a2-{index}", "module910bx8") for index in range(36)]
    await cell.nodes([*others, *(a_node(f"a1-{index}", "module910x8") for index in range(4))])
    await cell.submit(a_job("big", chips=8, replicas=5, product="module910x8"))
    await cell.turns(2)
    status = await cell.status("big")
    assert status is not None
    assert status.refusal is not None
    assert status.refusal.code == "larger-than-cluster"
    assert status.refusal.expected == (
        "the job asks for 40 chips of huawei.com/Ascend910, and there are 32 in all, on 4 nodes that it may use"
    )
    await cell.close()


def test_settings_without_configuration_are_those_of_the_release() -> None:
    assert DispatcherConfig().decisions.to_settings() == Settings()


async def test_of_many_small_jobs_those_beyond_the_bound_of_their_namespace_are_rejected_and_no_other() -> None:
    cell = await Cell(waiting_jobs_max=3).open()
    await cell.submit(*(a_job(f"many-{number}", chips=8) for number in range(5)), a_job("mine", chips=8, namespace="b"))
    await cell.turns(4)
    assert [await phase(cell, f"many-{number}") for number in range(5)] == ["waiting"] * 3 + ["rejected"] * 2
    refused = await status(cell, "many-3")
    assert refused.sentence.startswith("namespace is one with 3 waiting jobs, expected at most 3 with this one")
    assert cell.dispatcher.state.jobs["b", "mine"].state == "accepted"
    # a place is free when a job is placed, and when one is cancelled
    await cell.nodes([a_node("n0")])
    await cell.cancel("many-1")
    await cell.turns(4)
    await cell.submit(*(a_job(f"later-{number}", chips=8) for number in range(3)))
    await cell.turns(4)
    assert [await phase(cell, f"later-{number}") for number in range(3)] == ["waiting"] * 2 + ["rejected"]
    await cell.close()


async def test_a_request_of_too_many_bytes_is_refused_whatever_they_are_and_not_kept() -> None:
    cell = await Cell().open()
    cell.server.payload_limit_bytes = 8 << 20
    await cell.nodes([a_node("n0")])
    await cell.submit(a_job("long", origin="x" * 3_000_000), a_job("other"))
    await cell.turns(4)
    assert (await phase(cell, "long"), await phase(cell, "other")) == ("rejected", "placed")
    assert (await status(cell, "long")).sentence.endswith("expected at most 2000000 bytes of a job")
    assert cell.dispatcher.state.jobs["default", "long"].request is None
    await cell.close()


async def test_a_leader_that_begins_counts_the_jobs_that_wait() -> None:
    cell = await Cell(waiting_jobs_max=1).open()
    await cell.submit(a_job("first", chips=8))
    await cell.turns(3)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.submit(a_job("second", chips=8))
    await cell.turns(3)
    assert (await phase(cell, "first"), await phase(cell, "second")) == ("waiting", "rejected")
    await cell.close()
