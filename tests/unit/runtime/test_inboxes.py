"""Who may have an answer where."""

import pytest

from berth.runtime.bus.port import Endpoint
from berth.runtime.bus.service import NatsServed
from berth.runtime.inboxes import (
    ANYBODY,
    CALLERS,
    DISCOVERERS,
    NAMED,
    inbox_of,
    inbox_of_agent,
    inbox_of_person,
    is_inbox_of,
)
from berth.runtime.logs import DEFAULT_LOG
from tests.support.fake_wire import Arrived, FakeWire
from tests.support.waiting import until

AGENT = (f"agent.{NAMED}",)


@pytest.mark.parametrize(
    ("callers", "subject", "reply", "may"),
    [
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r.1", True),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r.1.2.3", True),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.d.1", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal2.r.1", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.gateway.r.1", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r.", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r.*", False),
        ((NAMED,), "berth.c.api.status.portal", "_INBOX.portal.r.>", False),
        ((NAMED,), "berth.c.api.status.portal", "berth.c.ledger", False),
        ((NAMED,), "berth.c.api.status.*", "_INBOX.portal.r.1", False),
        ((NAMED,), "berth.c.api.status.team=2Eportal", "_INBOX.team=2Eportal.r.1", True),
        (AGENT, "berth.c.report.health.n1", "_INBOX.agent.n1.r.1", True),
        (AGENT, "berth.c.report.health.n1", "_INBOX.agent.n2.r.1", False),
        (AGENT, "berth.c.report.health.n1", "_INBOX.n1.r.1", False),
        (DISCOVERERS, "$SRV.STATS", "_INBOX.person.me.r.1", True),
        (DISCOVERERS, "$SRV.STATS", "_INBOX.gateway.r.1", True),
        (DISCOVERERS, "$SRV.STATS", "_INBOX.portal.r.1", False),
        (DISCOVERERS, "$SRV.STATS", "_INBOX.person.r.1", False),
        (CALLERS["scorer"], "berth.c.score.0", "_INBOX.dispatcher.r.1", True),
        (CALLERS["scorer"], "berth.c.score.0", "_INBOX.scorer.r.1", False),
        (ANYBODY, "berth.c.api.status", "_INBOX.AbCdEf.GhIj", True),
        (ANYBODY, "berth.c.api.status", "_INBOX", False),
        (ANYBODY, "berth.c.api.status", "_INBOX_portal.x", False),
        (ANYBODY, "berth.c.api.status", "$JS.API.STREAM.DELETE.LEDGER_c", False),
    ],
)
def test_to_whom_an_answer_goes(callers: tuple[str, ...], subject: str, reply: str, *, may: bool) -> None:
    assert is_inbox_of(callers, reply, subject) == may


def test_inboxes_of_kinds_of_users_differ_and_names_are_escaped() -> None:
    assert inbox_of("portal") == "_INBOX.portal"
    assert inbox_of_person("a.b") == "_INBOX.person.a=2Eb"
    assert inbox_of_agent("node.1") == "_INBOX.agent.node=2E1"


async def test_a_request_that_wants_its_answer_elsewhere_is_counted_and_not_carried_out() -> None:
    wire = FakeWire()
    seen: list[bytes] = []

    async def handle(_: str, data: bytes) -> None:
        seen.append(data)

    served = NatsServed(wire, Endpoint("ask", "ask.*", "", "", "", callers=(NAMED,)), handle, DEFAULT_LOG)
    for reply in ("ledger", "_INBOX.other.r.1", "_INBOX.me.d.1", "", "_INBOX.me.r.1"):
        served._receive(Arrived("ask.me", reply, reply.encode()))
    await until(lambda: served.taken == 5, deadline_s=5, what="all requests")
    assert (seen, served.refused, served.failed) == ([b"", b"_INBOX.me.r.1"], 3, 3)
    assert served.last_error == "the reply subject is not in the inbox of a caller"
    assert wire.failures == []
    await served.cancel()
