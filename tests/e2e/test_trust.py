"""What each identity can really do on NATS, against the tables of the page about trust.

Each identity tries each subject: directly, by a reply through its own inbox, through the services that answer it, and
through the server: its API, consumers, sources, mirrors, and subjects to publish to again.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.runtime.keys.rights import ONE_PROCESS, SERVICES, STREAMS, Rights, covers, rights_of_agent
from berth.schemas.subjects import StreamName, Subjects
from tests.support.guarded_nats import (
    AGENT,
    CELL,
    NODE,
    PROGRAM,
    QUIET_TARGETS,
    SUBJECTS,
    Guarded,
    content,
    guarded_nats,
    identities,
)
from tests.support.nats_line import Line

ROOT: Final = SUBJECTS.root
LEDGER: Final = SUBJECTS.stream(StreamName.LEDGER)
EVENTS: Final = SUBJECTS.stream(StreamName.EVENTS)
TARGETS: Final = (
    *QUIET_TARGETS,
    *(SUBJECTS.ledger, SUBJECTS.lease("dispatcher"), SUBJECTS.fact_timer, SUBJECTS.status("a", "b")),
)
"""Where somebody without the right would like to have a message."""
UNKNOWN: Final = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.CREATE.x1",
    "$JS.API.ACCOUNT.PURGE.x1",
    "$JS.ACK.x1.y1",
    "$SRV.PING",
    "$SYS.REQ.SERVER.PING",
    "$KV.x1.y1",
    "_INBOX.x1.d.y1",
    "_INBOX.x1.y1",
    "_INBOX.stranger.r.y1",
    "_INBOX.stranger.d.y1",
    "_INBOX.person.stranger.r.y1",
    "_INBOX.person.r.r.y1",
    "_INBOX.agent.n2.r.y1",
    "_INBOX.agent.r.r.y1",
    "some.other.subject",
)
"""Subjects that few or none may use."""
OF_STREAMS: Final = (
    *("STREAM.INFO.{}", "STREAM.CREATE.{}", "STREAM.UPDATE.{}", "STREAM.DELETE.{}", "STREAM.PURGE.{}"),
    *("STREAM.MSG.GET.{}", "STREAM.MSG.DELETE.{}", "STREAM.SNAPSHOT.{}", "STREAM.RESTORE.{}", "STREAM.PEER.REMOVE.{}"),
    *("STREAM.LEADER.STEPDOWN.{}", "DIRECT.GET.{}", "CONSUMER.NAMES.{}", "CONSUMER.LIST.{}"),
    *("CONSUMER.CREATE.{}.x1", "CONSUMER.CREATE.{}.x1.y1", "CONSUMER.DURABLE.CREATE.{}.x1", "CONSUMER.INFO.{}.x1"),
    *("CONSUMER.DELETE.{}.x1", "CONSUMER.MSG.NEXT.{}.x1", "CONSUMER.LEADER.STEPDOWN.{}.x1"),
)
"""Requests to the server about a stream."""


def all_subjects(of: Iterable[Rights]) -> list[str]:
    """A subject for each pattern that somebody has, the same of another cell, requests about streams, and others."""
    patterns = {pattern for may in of for column in may for pattern in column}
    found = {re.sub(r">$", "x1.y1", pattern.replace("*", "x1")) for pattern in patterns}
    found |= {f"$JS.API.{verb.format(SUBJECTS.stream(name))}" for verb in OF_STREAMS for name in StreamName}
    found |= {f"{Subjects('other').root}{one.removeprefix(ROOT)}" for one in found if one.startswith(ROOT)}
    found |= {SUBJECTS.report_health("n2"), SUBJECTS.report_health("n"), SUBJECTS.reports_health}
    found |= {SUBJECTS.api_as("submit", "another"), SUBJECTS.gate("submit", PROGRAM), SUBJECTS.event_job("team-b", "j")}
    return sorted(found | set(UNKNOWN))


def is_let(may: Rights, column: Sequence[str], subject: str) -> bool:
    """Whether the page lets a subject through."""
    refused = column is may.publish and any(covers(one, subject) for one in may.refused)
    return any(covers(one, subject) for one in column) and not refused


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """A server with keys of each kind of identity, and the streams of the cell."""
    async with guarded_nats(tmp_path) as made:
        yield made


async def beyond(opened: AbstractAsyncContextManager[Line], may: Rights, subjects: Sequence[str]) -> set[str]:
    """Where the server and the page differ about a user, directly and by replies through its own inbox."""
    found: set[str] = set()
    wanted = {
        "Publish": {one for one in subjects if not is_let(may, may.publish, one)},
        "Subscription": {one for one in subjects if not is_let(may, may.subscribe, one)},
    }
    own = [one.removesuffix(">") + "own" for one in may.subscribe if one.startswith("_INBOX.")]
    async with opened as who:
        for subject in subjects:
            who.publish(subject)
            who.subscribe(subject)
        await who.settle()
        for what, expected in wanted.items():
            found |= {f"{what} {subject}" for subject in who.refused[what] ^ expected}
        who.errors.clear()
        for inbox in own:
            who.subscribe(inbox)
        for subject in sorted(wanted["Publish"]):
            for inbox in own:
                who.publish(inbox, reply=subject)
        await who.settle()
        who.errors.clear()
        for subject in sorted(wanted["Publish"]):
            who.publish(subject)
        await who.settle()
        found |= {f"by reply {subject}" for subject in wanted["Publish"] - who.refused["Publish"]}
    return found


@pytest.mark.timeout(180)
async def test_each_identity_may_use_its_subjects_and_no_others(guarded: Guarded) -> None:
    of = identities()
    assert {*SERVICES, ONE_PROCESS, "berth", STREAMS, PROGRAM, AGENT} < set(of)
    subjects = all_subjects(of.values())
    assert len(subjects) > 300
    for name, may in of.items():
        assert await beyond(guarded.line(name), may, subjects) == set(), name


@pytest.mark.parametrize(
    "more",
    [
        Rights((), ("berth.guarded.report.health.>",)),
        Rights(("berth.guarded.report.health.*",), ()),
        Rights(("_INBOX.agent.n1.r.>",), ()),
        Rights(("$JS.API.STREAM.INFO.EVENTS_guarded",), ()),
    ],
    ids=["reads all reports", "reports for others", "answers itself", "asks the server"],
)
async def test_an_agent_with_more_rights_is_noticed(guarded: Guarded, more: Rights) -> None:
    may = identities()[AGENT]
    own = rights_of_agent(CELL, NODE)
    wider = guarded.line_with(Rights(own.publish + more.publish, own.subscribe + more.subscribe))
    subjects = all_subjects(identities().values())
    assert await beyond(guarded.line(AGENT), may, subjects) == set()
    assert await beyond(wider, may, subjects)


async def test_a_right_to_reply_is_noticed(guarded: Guarded) -> None:
    may = identities()[AGENT]
    own = rights_of_agent(CELL, NODE)
    old = guarded.line_with(Rights((*own.publish, "_INBOX.agent.n1.r.>"), own.subscribe), replies=True)
    found = await beyond(old, may, all_subjects(identities().values()))
    assert f"by reply {ROOT}ledger" in found


@pytest.mark.parametrize("user", [PROGRAM, AGENT])
async def test_nats_allow_responses_nobody_answers_itself_on_the_subject_of_others(guarded: Guarded, user: str) -> None:
    own = {PROGRAM: "_INBOX.portal", AGENT: "_INBOX.agent.n1"}[user]
    async with guarded.observer() as observer, guarded.line(user) as who:
        before = await content(observer)
        who.subscribe(f"{own}.r.x")
        for target in TARGETS:
            who.publish(f"{own}.r.x", reply=target)
            who.publish(target, b"garbage")
        await who.settle()
        assert who.came == []
        assert who.refused["Publish"] == {f"{own}.r.x", *TARGETS}
        assert await content(observer) == before


@pytest.mark.parametrize("user", [PROGRAM, AGENT])
async def test_nats_deliver_subject_programs_and_agents_have_the_server_publish_nothing(
    guarded: Guarded, user: str
) -> None:
    events = f"{ROOT}event.job.team-a.>"
    async with guarded.observer() as observer, guarded.line(user) as who:
        observer.publish(SUBJECTS.event_job("team-a", "j"), b"bytes of a tenant")
        observer.publish(SUBJECTS.ledger, b"record")
        before = await content(observer)
        for target in TARGETS:
            observer.subscribe(target)
        await observer.settle()
        tried = set()
        for number, target in enumerate(TARGETS):
            deliver = {"name": f"c{number}", "deliver_subject": target, "ack_policy": "none", "filter_subject": events}
            anew = {"src": ">", "dest": target}
            for verb, body in (
                (f"STREAM.INFO.{EVENTS}", {}),
                (f"STREAM.INFO.{LEDGER}", {}),
                (f"STREAM.MSG.GET.{EVENTS}", {"seq": 1}),
                (f"CONSUMER.INFO.{EVENTS}.{user}", {}),
                (f"CONSUMER.MSG.NEXT.{EVENTS}.{user}", {"batch": 1}),
                (f"CONSUMER.CREATE.{EVENTS}.c{number}.{events}", {"stream_name": EVENTS, "config": deliver}),
                (f"CONSUMER.CREATE.{EVENTS}.c{number}", {"stream_name": EVENTS, "config": deliver}),
                (f"CONSUMER.DURABLE.CREATE.{EVENTS}.c{number}", {"stream_name": EVENTS, "config": deliver}),
                (f"STREAM.CREATE.s{number}", {"name": f"s{number}", "sources": [{"name": EVENTS}], "republish": anew}),
                (f"STREAM.CREATE.m{number}", {"name": f"m{number}", "mirror": {"name": LEDGER}, "republish": anew}),
                (f"STREAM.UPDATE.{EVENTS}", {"name": EVENTS, "subjects": [events], "republish": anew}),
                (f"STREAM.UPDATE.{LEDGER}", {"name": LEDGER, "max_msgs": 1, "sources": [{"name": EVENTS}]}),
                (f"STREAM.PURGE.{LEDGER}", {}),
                (f"STREAM.DELETE.{LEDGER}", {}),
            ):
                tried.add(f"$JS.API.{verb}")
                who.publish(f"$JS.API.{verb}", msgspec.json.encode(body), reply=target)
        await who.settle()
        assert who.refused["Publish"] == tried
        assert await content(observer) == before
        assert [one for one in observer.came if one.subject in TARGETS] == []


async def test_services_have_the_server_change_no_stream_but_their_own(guarded: Guarded) -> None:
    may_change = {"dispatcher": {StreamName.STATUS, StreamName.LATEST, StreamName.LEASE}}
    async with guarded.observer() as observer:
        before = await content(observer)
        for service in SERVICES:
            wanted = set(StreamName) - may_change.get(service, set())
            async with guarded.line(service) as who:
                for name in wanted:
                    stream = SUBJECTS.stream(name)
                    fed = {"name": stream, "max_msgs": 1, "sources": [{"name": SUBJECTS.stream(StreamName.INTAKE)}]}
                    for verb in ("CREATE", "UPDATE"):
                        who.publish(f"$JS.API.STREAM.{verb}.{stream}", msgspec.json.encode(fed))
                    who.publish(f"$JS.API.STREAM.DELETE.{stream}", b"")
                await who.settle()
                verbs = ("CREATE", "UPDATE", "DELETE")
                tried = {f"$JS.API.STREAM.{verb}.{SUBJECTS.stream(name)}" for verb in verbs for name in wanted}
                assert who.refused["Publish"] == tried, service
        assert await content(observer) == before


async def test_an_agent_has_bounds(guarded: Guarded) -> None:
    async with guarded.line(AGENT) as who:
        for number in range(20):
            who.subscribe(f"_INBOX.agent.n1.r.{number}")
        await who.settle()
        assert set(who.errors) == {"'maximum subscriptions exceeded'"}
    async with guarded.line(AGENT) as who:
        who.publish(SUBJECTS.report_health(NODE), b" " * (64 << 10))
        await who.settle()
        who.publish(SUBJECTS.report_health(NODE), b" " * ((64 << 10) + 1))
        with pytest.raises(ConnectionError):
            await who.settle()
