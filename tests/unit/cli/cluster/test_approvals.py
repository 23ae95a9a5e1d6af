"""``berth faults approve``: what it accepts and publishes, and what ``berth faults`` shows of it."""

import asyncio
import json

import pytest

from berth.cli.cluster.approvals import (
    approved_rows,
    check_kind_and_reason,
    publish_approval,
    withdrawn_rows,
)
from berth.cli.cluster.cell_lists import NO_FAULTS
from berth.cli.cluster.fault_list import faults_in, listing_of, show
from berth.cli.cluster.held_restarts import ApprovalRow, approvals_of, held_of
from berth.cli.output import FAILED, CommandError
from berth.runtime.history import state_now
from berth.schemas.envelope import encode
from berth.schemas.facts import HealthSource, PodPhase
from berth.schemas.fault_facts import REASON_MAX, GroupSeen
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.support.own_command import OwnCommand

DEVICE = HealthSource.DEVICE_PLUGIN


async def a_storm(share_percent: int = 20) -> Cell:
    """A node with eight running jobs, three of which a report would restart."""
    cell = await Cell(restarts_at_once=2, restart_share_percent=share_percent).open()
    await cell.nodes([a_node("n0"), a_node("n1")])
    for number in range(8):
        await cell.submit(a_job(f"j{number}", chips=1))
        fact = GroupSeen("default", f"pg{number}", labels={"fault-scheduling": "force"}, jobs=[f"j{number}"])
        await cell.user.publish(cell.user.subjects.fact_group("default", f"pg{number}"), encode(fact))
    await cell.turns(2)
    for number in range(8):
        await cell.pods(f"j{number}", PodPhase.RUNNING)
    await cell.turns(2)
    await report(cell)
    return cell


async def report(cell: Cell) -> None:
    state = cell.dispatcher.state
    domain = state.table.domains[0]
    await cell.health(domain, [NodeCondition("n0", unhealthy=0b111, sources=DEVICE), NodeCondition("n1")])
    await cell.turns(2)


def domain_of(cell: Cell) -> str:
    return cell.dispatcher.state.faults.domain("n0")


async def test_what_is_held_back_is_shown_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_storm()
    now_ms = cell.clock.now_ms()
    held = held_of(cell.dispatcher.state, now_ms)
    assert [(one.name, one.kind, one.domain, one.approvable) for one in held] == [
        (f"j{number}", "CardUnhealthy", domain_of(cell), True) for number in range(3)
    ]
    found = listing_of(
        cell.dispatcher.state, await faults_in(await state_now(cell.user, cell.clock), cell.user), now_ms
    )
    assert (found.held, found.approvals) == (held, [])
    capsys.readouterr()
    show(found, now_ms)
    text = capsys.readouterr().out
    assert NO_FAULTS not in text
    assert (
        "not restarted yet: default/j0, default/j1, default/j2: CardUnhealthy would restart 3 of 8 jobs, more than 20"
        " percent, and only the device plug-in reports it; " in text
    )
    assert f"`berth faults approve CardUnhealthy --domain {domain_of(cell)}`" in text
    await cell.close()


async def test_without_a_name_everything_that_is_held_back_is_approved(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_storm()
    state, now_ms = cell.dispatcher.state, cell.clock.now_ms()
    (row,) = approved_rows(
        held_of(state, now_ms), "", None, until_ms=now_ms + 60_000, reason="seen on site", now_ms=now_ms
    )
    assert (row.kind, row.domain, row.until_ms, row.at_ms) == (
        "CardUnhealthy",
        domain_of(cell),
        now_ms + 60_000,
        now_ms,
    )
    await publish_approval(cell.user, row)
    await cell.turns(2)
    last = [gang.recovery for gang in cell.dispatcher.state.fold.gangs.values() if gang.recovery is not None]
    assert len(last) == 2
    assert all(one.cause.endswith(f"; {row.by} approved it") for one in last)
    (left,) = held_of(state, now_ms)
    assert not left.approvable
    assert approvals_of(state, now_ms) == [row]
    capsys.readouterr()
    show(listing_of(state, await faults_in(await state_now(cell.user, cell.clock), cell.user), now_ms), now_ms)
    text = capsys.readouterr().out
    assert f"CardUnhealthy in domain {domain_of(cell)}, by {row.by}, because seen on site" in text
    assert approvals_of(state, now_ms + 60_000) == []
    await cell.close()


@pytest.mark.parametrize(("kind", "domain"), [("NodeUnhealthy", None), ("CardUnhealthy", "elsewhere"), ("", "x")])
async def test_what_is_not_held_back_is_approved_by_its_full_name_alone(kind: str, domain: str | None) -> None:
    cell = await a_storm()
    state, now_ms = cell.dispatcher.state, cell.clock.now_ms()
    if kind and domain is not None:
        (row,) = approved_rows(held_of(state, now_ms), kind, domain, until_ms=now_ms + 1, reason="", now_ms=now_ms)
        assert (row.kind, row.domain) == (kind, domain)
    else:
        with pytest.raises(CommandError) as caught:
            approved_rows(held_of(state, now_ms), kind, domain, until_ms=now_ms + 1, reason="", now_ms=now_ms)
        assert caught.value.code == FAILED
        assert caught.value.lines == (
            f"no such restart is held back; held back: CardUnhealthy in domain {domain_of(cell)}",
        )
    await cell.close()


async def test_an_approval_is_withdrawn() -> None:
    cell = await a_storm(share_percent=1)
    state, now_ms = cell.dispatcher.state, cell.clock.now_ms()
    with pytest.raises(CommandError, match=r"^no such approval; approved: nothing$"):
        withdrawn_rows(state, "", None, reason="", now_ms=now_ms)
    await publish_approval(cell.user, ApprovalRow("NodeUnhealthy", "d", now_ms + 1, "ops", "", now_ms))
    await cell.turns()
    with pytest.raises(CommandError, match=r"^no such approval; approved: NodeUnhealthy in domain d$"):
        withdrawn_rows(state, "CardUnhealthy", None, reason="", now_ms=now_ms)
    (row,) = withdrawn_rows(state, "NodeUnhealthy", None, reason="", now_ms=now_ms)
    assert (row.domain, row.until_ms) == ("d", 0)
    await publish_approval(cell.user, row)
    await cell.turns()
    assert state.faults.approvals == {}
    await cell.close()


def test_kinds_and_reasons() -> None:
    check_kind_and_reason("", "")
    check_kind_and_reason("CardUnhealthy", "x" * REASON_MAX)
    with pytest.raises(CommandError, match=r"^the kind is 'chip', expected CardUnhealthy, NodeUnhealthy, SubHealth"):
        check_kind_and_reason("chip", "")
    with pytest.raises(CommandError, match=r"^--reason has 1025 characters, expected at most 1024$"):
        check_kind_and_reason("", "x" * (REASON_MAX + 1))


def test_an_approval_lasts_as_long_as_the_user_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stored() -> Cell:
        cell = await Cell().open()
        await cell.close()
        return cell

    berth = OwnCommand(monkeypatch, capsys, asyncio.run(stored()).server)
    code, out, err = berth("faults", "approve", "CardUnhealthy", "--domain", "leaf-0", "--for", "30m", "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["until_ms"] - row["at_ms"] == 1_800_000
