"""Drains and approvals that programs ask for: who may, what is stored, and what is refused."""

import pytest

from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSource, PodPhase
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig, Grant
from tests.support.cells import a_job
from tests.support.programs import Programs, programs

GRANTS = ApiConfig(
    access="grants",
    grants=[
        Grant(identity="ops", role="operate", namespaces=["*"]),
        Grant(identity="admin", role="submit", namespaces=["*"]),
        Grant(identity="half", role="operate", namespaces=["team"]),
    ],
)
NODE = {"kind": "node", "name": "n0"}


async def drains(told: Programs) -> list[DrainSeen]:
    """Drains as they are stored."""
    stored = await told.bus.read(StreamName.FACTS, filters=[told.bus.subjects.facts("drain")])
    return [decode(one.data, DrainSeen) for one in stored]


async def a_storm(told: Programs) -> str:
    """Eight running jobs on a node, three of which a report would restart; returns the domain of the node."""
    cell = told.cell
    for number in range(8):
        await cell.submit(a_job(f"j{number}", chips=1))
        fact = GroupSeen("default", f"pg{number}", labels={"fault-scheduling": "force"}, jobs=[f"j{number}"])
        await cell.user.publish(cell.user.subjects.fact_group("default", f"pg{number}"), encode(fact))
    await told.turns(2)
    for number in range(8):
        await cell.pods(f"j{number}", PodPhase.RUNNING)
    await told.turns(2)
    condition = NodeCondition("n0", unhealthy=0b111, sources=HealthSource.DEVICE_PLUGIN)
    await cell.health(cell.dispatcher.state.table.domains[0], [condition, NodeCondition("n1")])
    await told.turns(2)
    return cell.dispatcher.state.faults.domain("n0")


async def test_a_node_is_drained_and_returned() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        reply = await told.ask("drain", {**NODE, "reason": "its fans"}, identity="ops")
        (stored,) = await drains(told)
        assert (stored.by, stored.reason, stored.since_ms) == ("program ops", "its fans", told.cell.clock.now_ms())
        assert (reply["kind"], reply["name"], reply["since_ms"]) == ("node", "n0", stored.since_ms)
        await told.turns(2)
        (listed,) = (await told.ask("drains", {}, identity="ops"))["drains"]
        assert (listed["name"], listed["by"]) == ("n0", "program ops")
        assert (await told.ask("undrain", NODE, identity="ops"))["since_ms"] == 0
        await told.turns(2)
        assert (await told.ask("drains", {}, identity="ops"))["drains"] == []
        assert [(one.gone, one.by) for one in await drains(told)] == [(False, "program ops"), (True, "program ops")]


@pytest.mark.parametrize(
    ("verb", "request_"), [("drain", NODE), ("undrain", NODE), ("approve", {"kind": "CardUnhealthy"})]
)
@pytest.mark.parametrize("identity", ["admin", "half", ""])
async def test_only_who_may_operate_the_whole_cell_changes_it(
    verb: str, request_: dict[str, str], identity: str
) -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        reply = await told.ask(verb, request_, identity=identity)
        assert reply["code"] == "denied"
        assert reply["error"].endswith("expected one that may operate the cell in all namespaces")
        assert await drains(told) == []
        assert (await told.ask("rights", {}, identity=identity))["operate"] is False
        assert (await told.ask("rights", {}, identity="ops"))["operate"] is True


@pytest.mark.parametrize(
    ("verb", "request_", "error", "code"),
    [
        ("drain", {"kind": "node", "name": "n9"}, "name is 'n9', expected a known node", "not-found"),
        ("drain", {"kind": "leaf", "name": "n0"}, "name is 'n0', expected a known leaf switch", "not-found"),
        ("drain", {**NODE, "since_ms": 1}, "since_ms is 1, expected a moment to come, or 0 for now", "invalid-request"),
        ("undrain", NODE, "name is 'n0', expected a node that is drained", "not-found"),
        (
            "approve",
            {"kind": "pod-failed"},
            "kind is 'pod-failed', expected one of CardUnhealthy, NodeUnhealthy, SubHealthFault",
            "invalid-request",
        ),
        (
            "approve",
            {"kind": "CardUnhealthy", "lasts_ms": 0},
            "kind is 'CardUnhealthy', expected one that is approved in this domain",
            "not-found",
        ),
    ],
)
async def test_what_cannot_be_is_refused(verb: str, request_: dict[str, object], error: str, code: str) -> None:
    async with programs() as told:
        reply = await told.ask(verb, request_)
        assert (reply["error"], reply["code"]) == (error, code)
        assert await drains(told) == []


async def test_restarts_that_are_held_back_are_listed_and_approved() -> None:
    async with programs(is_started=False, restarts_at_once=2, restart_share_percent=20) as told:
        await told.start(GRANTS)
        domain = await a_storm(told)
        found = await told.ask("faults", {}, identity="ops")
        assert [(one["name"], one["kind"], one["domain"], one["approvable"]) for one in found["held"]] == [
            (f"j{number}", "CardUnhealthy", domain, True) for number in range(3)
        ]
        assert found["approvals"] == []
        other = await told.ask("faults", {}, identity="half")
        assert (other["held"], other["more_held"]) == ([], 3), "jobs of other namespaces have no names"
        asked = {"kind": "CardUnhealthy", "domain": domain, "reason": "a real fault"}
        reply = await told.ask("approve", asked, identity="ops")
        assert reply["until_ms"] == told.cell.clock.now_ms() + 600_000
        await told.turns(2)
        found = await told.ask("faults", {}, identity="ops")
        assert [(one["kind"], one["by"], one["reason"]) for one in found["approvals"]] == [
            ("CardUnhealthy", "program ops", "a real fault")
        ]
        assert [one["approvable"] for one in found["held"]] == [False], "two restart, one after them"
        assert (await told.ask("faults", {}, identity="half"))["approvals"][0]["by"] == ""
        await told.ask("approve", {**asked, "lasts_ms": 0}, identity="ops")
        *_, stored = await told.bus.read(StreamName.FACTS, filters=[told.bus.subjects.facts("approval")])
        assert decode(stored.data, ApprovalSeen).gone
