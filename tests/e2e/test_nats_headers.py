"""Headers of NATS by which the server itself writes or removes something, from each identity.

A server publishes traces of a message where its header says, and can remove older messages of a stream, publish one
again at a time, or count: none of this reaches further than the rights of who sends it.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from berth.runtime.keys.rights import Rights
from berth.schemas.subjects import StreamName
from tests.e2e.test_trust import is_let
from tests.support.guarded_nats import QUIET_TARGETS, SUBJECTS, Guarded, answered, guarded_nats, identities

TARGETS: Final = (
    *QUIET_TARGETS,
    *(SUBJECTS.ledger, SUBJECTS.lease("dispatcher"), SUBJECTS.fact_timer, SUBJECTS.status("a", "b")),
)
"""Where somebody without the right would like to have a message."""
STORED: Final = (
    *(
        SUBJECTS.intake_request("n", "j"),
        SUBJECTS.fact_node("d"),
        SUBJECTS.fact_health("d"),
        SUBJECTS.fact_pod("n", "g"),
    ),
    *(SUBJECTS.fact_outcome("n", "j"), SUBJECTS.fact_drain("node", "n"), SUBJECTS.snapshot_chunk(1, 0)),
    *(SUBJECTS.event_job("team-a", "j"), SUBJECTS.dead(StreamName.FACTS, 1)),
)
"""Subjects of streams that services and people write to, beside the targets."""
KEEPING: Final = (StreamName.INTAKE, StreamName.FACTS, StreamName.LEDGER, StreamName.EVENTS, StreamName.SNAPSHOT)
"""Streams that keep all messages of a subject."""
ALONE: Final[tuple[dict[str, str], ...]] = (
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-TTL": "1s"},
    {"Nats-Incr": "+5"},
    {"Nats-Marker-Reason": "Purge"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Stream-Source": f"{SUBJECTS.stream(StreamName.LEDGER)} 1 > >"},
)
"""Headers without a target."""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded_nats(tmp_path) as made:
        yield made


def asking_for(target: str) -> tuple[dict[str, str], ...]:
    """Headers by which a server would publish to a subject."""
    return (
        {"Nats-Trace-Dest": target},
        {"Nats-Trace-Dest": target, "Nats-Trace-Only": "true"},
        {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target},
        {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target, "Nats-Schedule-Source": SUBJECTS.ledger},
    )


def own_subjects(may: Rights) -> list[str]:
    """Subjects at which an identity may publish."""
    exact = [one for one in may.publish if one.startswith(SUBJECTS.root) and one[-1] not in "*>"]
    return [*(one for one in STORED if is_let(may, may.publish, one)), *exact[:3]]


@pytest.mark.timeout(120)
async def test_headers_reach_no_further_than_rights(guarded: Guarded) -> None:
    async with guarded.observer() as observer:
        for target in TARGETS:
            observer.subscribe(target)
        for subject in STORED:
            observer.publish(subject, b"before")
        await observer.settle()
        for name, may in identities().items():
            refused = {target for target in TARGETS if not is_let(may, may.publish, target)}
            own = own_subjects(may)
            async with guarded.line(name) as who:
                for subject in own:
                    for target in sorted(refused):
                        for headers in asking_for(target):
                            who.publish(subject, b"x", headers=headers)
                    for headers in ALONE:
                        who.publish(subject, b"x", headers=headers)
                await who.settle()
                assert not own or who.refused["Publish"] == refused, name
            await observer.settle()
            asked = {one.subject for one in observer.came if not one.is_status}
            assert asked.isdisjoint(refused - set(own)), name
            observer.came.clear()
        for stream in KEEPING:
            state = (await answered(observer, f"$JS.API.STREAM.INFO.{SUBJECTS.stream(stream)}"))["state"]
            assert (state["first_seq"], state["messages"]) == (1, state["last_seq"]), f"{stream} lost messages"


async def test_a_right_to_have_the_ledger_traced_would_be_noticed(guarded: Guarded) -> None:
    """The trap works: with the right to publish there, the server publishes a trace."""
    async with guarded.observer() as observer:
        observer.subscribe(SUBJECTS.ledger)
        async with guarded.line_with(Rights((SUBJECTS.fact_node("d"), SUBJECTS.ledger), ())) as who:
            who.publish(SUBJECTS.fact_node("d"), b"x", headers={"Nats-Trace-Dest": SUBJECTS.ledger})
            await who.settle()
        assert b'"events"' in (await observer.first(SUBJECTS.ledger)).data
