"""Services carry out nothing that is to be answered where their caller has no inbox; see the page about trust."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from berth.schemas.envelope import encode
from berth.schemas.offers import ScoreRequest
from tests.support.guarded_nats import CELL, PROGRAM, QUIET_TARGETS, SUBJECTS, Guarded, guarded_nats
from tests.support.nats_line import Line
from tests.support.processes import ROOT, Service, services
from tests.support.waiting import SLACK, pause

SETTINGS: Final[Mapping[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 1},
    "scorer": {"shards": 1},
    "health": {"source": "none"},
    "api": {"grants": [{"identity": PROGRAM, "role": "read", "namespaces": ["team-a"]}]},
    "nodesim": {"topology_file": str(ROOT / "docs" / "examples" / "cluster.yaml")},
}
NOTHING: Final = ScoreRequest(round=0, epoch=0, facts_seq=0, ledger_seq=0, asks=[], wait_ms=1)
ASKED: Final = (
    ("portal", "_INBOX.portal", SUBJECTS.api_as("rights", PROGRAM), b"{}"),
    ("plug-in", "_INBOX.agent.n1", SUBJECTS.report_health("n1"), b'{"node": "n1"}'),
    ("gateway", "_INBOX.gateway", SUBJECTS.gate("rights", PROGRAM), b"{}"),
    ("dispatcher", "_INBOX.dispatcher", SUBJECTS.score(0), encode(NOTHING)),
    ("repair", "_INBOX.person.repair", SUBJECTS.heartbeat_question("dispatcher"), b""),
    ("restore", "_INBOX.person.restore", SUBJECTS.sim("counts"), b""),
    ("ops", "_INBOX.person.ops", "$SRV.STATS", b""),
    ("gateway", "_INBOX.gateway", "$SRV.STATS", b""),
)
"""Who asks, with which inbox, where, and what."""
PERSONS_ASK: Final = (SUBJECTS.heartbeat_question("dispatcher"), SUBJECTS.sim("counts"))
_TRY_S: Final = 1.0


async def right_answer(who: Line, inbox: str, subject: str, data: bytes, *, tries: int = 1) -> bytes:
    """Answer in the own inbox; asked again while nobody answers yet.

    Raises:
        AssertionError: None came.
    """
    for number in range(tries):
        reply = f"{inbox}.r.own.{number}"
        who.subscribe(reply)
        who.publish(subject, data, reply=reply)
        try:
            found = await who.first(reply, deadline_s=_TRY_S * SLACK if tries > 1 else 20 * SLACK)
        except TimeoutError:
            continue
        if not found.is_status:
            return found.data
        await pause(0.1)
    raise AssertionError(f"no answer from {subject}: {who.errors}")


def running(made: Any, guarded: Guarded) -> list[Service]:  # noqa: ANN401  # what makes services
    """All services, each with its own key."""
    found = []
    for name, settings in SETTINGS.items():
        bus = {"creds_file": str(guarded.keys.credentials_file(name)), "makes_streams": False}
        found.append(made.service(name, CELL, bus={"cell": CELL, **bus}, **settings))
        found[-1].start()
    return found


def forged(inbox: str, subject: str) -> list[str]:
    """Where an answer must not go: all that is not for answers to those who may ask on the subject."""
    callers = ["_INBOX.gateway.r."] if subject.startswith(("$SRV", SUBJECTS.gate("rights", "x")[:-1])) else []
    callers += ["_INBOX.person."] if subject.startswith(("$SRV", *PERSONS_ASK)) else []
    wrong = (
        f"{inbox}.d.x.1",
        f"{inbox}.x",
        f"{inbox}.r",
        "_INBOX.portalx.r.1",
        "_INBOX.agent.n2.r.1",
        "_INBOX.a.b.c",
        "_INBOX.binderx.r.1",
    )
    return [*wrong, *(one for one in QUIET_TARGETS if not one.startswith(tuple(callers) or ("none",)))]


@pytest.mark.timeout(180)
async def test_nats_confused_deputy_no_service_answers_on_a_subject_of_others(tmp_path: Path) -> None:
    async with guarded_nats(tmp_path) as guarded, guarded.observer() as observer:
        with ExitStack() as stack:
            all_services = running(stack.enter_context(services(tmp_path, guarded.server.url)), guarded)
            for user, inbox, subject, data in ASKED:
                async with guarded.line(user) as who:
                    await right_answer(who, inbox, subject, data, tries=60)
            observer.subscribe(">")
            await observer.settle()
            tried: set[str] = set()
            for user, inbox, subject, data in ASKED:
                targets = forged(inbox, subject)
                tried |= set(targets)
                before = len(observer.came)
                async with guarded.line(user) as who:
                    for target in targets:
                        who.publish(subject, data, reply=target)
                    await right_answer(who, inbox, subject, data)  # comes after those before it were refused
                    assert who.errors == []
                await observer.settle()
                seen = {one.subject for one in observer.came[before:]}
                assert subject in seen
                assert seen & set(targets) == set(), subject
            assert tried > set(QUIET_TARGETS)
            async with guarded.line("restore") as who, guarded.line(PROGRAM) as program:
                # Whoever may ask without an identity may also name an inbox that api may not use: that ends nothing.
                who.publish(SUBJECTS.api("rights"), b"{}", reply="_INBOX.scorer.r.x")
                await who.settle()
                for _ in range(2):
                    await right_answer(program, *ASKED[0][1:])
            assert all(one.is_running for one in all_services), [one.log() for one in all_services]
            for service in all_services:
                assert "request refused" in service.log(), service.name
            for service in reversed(all_services):
                await service.stop()
