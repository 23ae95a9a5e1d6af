"""``berth usage``: chip-time of jobs and of products, counted by hand."""

import asyncio
import json

import pytest

from berth.cli.cluster.usage import ProductRow, UsageResult, UserRow, account_of, hours, show
from berth.core.overview.chip_account import ProductTime, UserTime
from berth.schemas.envelope import encode
from berth.schemas.facts import OutcomeSeen, PodPhase
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from tests.support.cells import Cell, a_job, a_node
from tests.support.own_command import OwnCommand

HOUR_MS = 3_600_000
A2 = "module910bx8"


async def a_cell() -> tuple[Cell, int]:
    """Two nodes of 8 chips; a job of 8 chips for an hour, then another of 4 for two; and when they began."""
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.turns()
    begin_ms = cell.clock.now_ms()
    await cell.submit(a_job("one", chips=8))
    await cell.turns(2)
    await cell.pods("one", PodPhase.RUNNING)
    await cell.turns()
    cell.clock.advance(HOUR_MS / 1000)
    await cell.pods("one", PodPhase.SUCCEEDED)
    await cell.submit(a_job("two", chips=4, namespace="ml"))
    await cell.turns(2)
    cell.clock.advance(2 * HOUR_MS / 1000)
    return cell, begin_ms


async def test_used_and_idle_chips_are_counted_by_hand() -> None:
    cell, begin_ms = await a_cell()
    began_ms, account = await account_of(cell.user, begin_ms, cell.clock.now_ms())
    assert began_ms == begin_ms
    spent = {key: round(time.used_ms / HOUR_MS) for key, time in account.users.items()}
    assert spent == {("default", "one", A2, ""): 8, ("ml", "two", A2, ""): 8}
    total = account.products[A2]
    parts = [round(part / HOUR_MS) for part in total]
    assert parts == [48, 16, 32, 0, 0]
    assert account.by(["product"])[A2,].jobs == 2
    await cell.close()


async def test_use_is_told_by_queue_where_queues_do_something() -> None:
    cell = await Cell(queues=1).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.user.publish(cell.user.subjects.fact_queue("q"), encode(QueueSeen(Queue("q"))))
    await cell.turns()
    begin_ms = cell.clock.now_ms()
    for name, queue in (("one", "q"), ("two", "default")):
        await cell.submit(a_job(name, chips=4, queue=queue))
        await cell.turns(2)
    cell.clock.advance(HOUR_MS / 1000)
    _, account = await account_of(cell.user, begin_ms, cell.clock.now_ms())
    assert {queue: round(time.used_ms / HOUR_MS) for (queue,), time in account.by(["queue"]).items()} == {
        "default": 4,
        "q": 4,
    }
    await cell.close()


async def test_a_later_begin_counts_what_is_after_it() -> None:
    cell, begin_ms = await a_cell()
    _, account = await account_of(cell.user, begin_ms + 2 * HOUR_MS, cell.clock.now_ms())
    assert {key: round(time.used_ms / HOUR_MS) for key, time in account.users.items()} == {("ml", "two", A2, ""): 4}
    await cell.close()


async def test_attempts_that_begin_anew_are_lost_to_what_ended_them() -> None:
    """A job of 8 chips loses a chip after an hour; two hours later its second attempt cannot be bound."""
    cell = await Cell().open()
    subjects, begin_ms = cell.user.subjects, cell.clock.now_ms()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("one", chips=8))
    group = GroupSeen("default", "pg", labels={"fault-scheduling": "grace"}, jobs=["one"], at_ms=begin_ms)
    await cell.user.publish(subjects.fact_group("default", "pg"), encode(group))
    await cell.turns(3)
    await cell.pods("one", PodPhase.RUNNING)
    await cell.turns(2)
    cell.clock.advance(HOUR_MS / 1000)
    await cell.health("bucket-all", [NodeCondition("a", unhealthy=1)])
    await cell.turns(2)
    await cell.pods("one", PodPhase.GONE)
    await cell.turns(2)
    cell.clock.advance(2 * HOUR_MS / 1000)
    failed = OutcomeSeen("default", "one", "uid-one", 2, "failed", at_ms=cell.clock.now_ms())
    await cell.user.publish(subjects.fact_outcome("default", "one"), encode(failed))
    await cell.turns(3)
    _, account = await account_of(cell.user, begin_ms, cell.clock.now_ms())
    assert account.users == {("default", "one", A2, ""): UserTime(1, 24 * HOUR_MS, 8 * HOUR_MS, 16 * HOUR_MS)}
    await cell.close()


def test_the_command_prints_what_it_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stored() -> Cell:
        cell, _ = await a_cell()
        await cell.close()
        return cell

    berth = OwnCommand(monkeypatch, capsys, asyncio.run(stored()).server)
    code, out, err = berth("usage", "--since", "9000d", "--by", "namespace,product")
    assert code == 0, err
    assert [line.split()[:3] for line in out.splitlines() if line.startswith(("default", "ml "))] == [
        ["default", A2, "1"], ["ml", A2, "1"],
    ]  # fmt: skip
    found = json.loads(berth("usage", "--since", "9000d", "--json")[1])
    assert [row["of"] for row in found["users"]] == [{"namespace": "default"}, {"namespace": "ml"}]
    assert berth("usage", "--by", "name")[0] == 2


def test_a_namespace_named_like_the_sum_shows_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"used_ms": 2 * HOUR_MS, "lost_to_faults_ms": HOUR_MS, "lost_to_evictions_ms": 0}
    users = [UserRow({"namespace": name}, jobs, **times) for name, jobs in (("all", 3), ("ml", 1))]
    show(UsageResult(0, HOUR_MS, users, []), ["namespace"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["all", "3", "2.0", "1.0", "0.0"], ["ml", "1", "2.0", "1.0", "0.0"], ["all", "4.0", "2.0", "0.0"],
    ]  # fmt: skip


def test_each_product_is_shown_with_what_became_of_its_chips(capsys: pytest.CaptureFixture[str]) -> None:
    products = [ProductRow(name, *(hour * HOUR_MS for hour in (8, 4, 2, 1, 1))) for name in (A2, "")]
    show(UsageResult(0, HOUR_MS, [], products), ["namespace"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[3:]] == [
        [name, "8.0", "4.0", "2.0", "1.0", "1.0"] for name in (A2, "unknown")
    ]


@pytest.mark.parametrize(
    ("chip_ms", "text"), [(0, "0.0"), (HOUR_MS // 2, "0.5"), (99 * HOUR_MS, "99.0"), (HOUR_MS * 1234, "1,234")]
)
def test_hours_have_a_decimal_where_they_are_few(chip_ms: int, text: str) -> None:
    assert hours(chip_ms) == text


def test_the_columns_are_those_that_are_summed() -> None:
    assert UserTime._fields[0] == "jobs"
    assert ProductTime._fields[0] == "chips_ms"
