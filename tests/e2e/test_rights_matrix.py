"""Each identity against each subject, on a real server: what the rights name is let through, and nothing else is."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import nats
import pytest

from berth.runtime.keys.rights import covers, rights_of_agent, rights_of_program
from berth.runtime.local.nats_server import EmbeddedServer
from berth.schemas.subjects import StreamName, Subjects
from tests.support.nats_rights import rights, rights_of_command
from tests.support.waiting import until

CELL: Final = "guarded"
OTHER_CELL: Final = "other"
COMMANDS: Final = ("dead", "repair", "restore")
SYSTEM: Final = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.DELETE.x1",
    "$JS.API.STREAM.MSG.DELETE.x1",
    "$JS.API.STREAM.SNAPSHOT.x1",
    "$JS.API.STREAM.RESTORE.x1",
    "$JS.API.STREAM.PEER.REMOVE.x1",
    "$SRV.PING",
    "$SYS.REQ.SERVER.PING",
    "_INBOX.x1.y1",
    "_INBOX_stranger.x1.y1",
    "some.other.subject",
)
"""Subjects that few or none may use."""
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)

Rights: TypeAlias = Mapping[str, Sequence[str]]
Refused: TypeAlias = dict[str, set[str]]
"""By what was tried: ``publish`` or ``subscription``."""


def identities() -> dict[str, Rights]:
    """Rights of every kind of user, by name: those of the page for operators, and of programs and agents."""
    program = rights_of_program(CELL, "portal", ["team-a"])
    agent = rights_of_agent(CELL, "plug-in")
    return {
        **rights(CELL),
        **{f"{command}s": rights_of_command(CELL, command) for command in COMMANDS},
        "portal": {"publish": program.publish, "subscribe": program.subscribe},
        "plug-in": {"publish": agent.publish, "subscribe": agent.subscribe},
    }


def subjects_of(all_rights: Iterable[Rights]) -> list[str]:
    """A subject for each pattern that some user has, the same of another cell, those of all streams, and others."""
    patterns = {pattern for one in all_rights for column in one.values() for pattern in column}
    found = {re.sub(r">$", "x1.y1", pattern.replace("*", "x1")) for pattern in patterns}
    subjects = Subjects(CELL)
    found |= {f"$JS.API.STREAM.INFO.{subjects.stream(name)}" for name in StreamName}
    found |= {f"{Subjects(OTHER_CELL).root}{one.removeprefix(subjects.root)}" for one in found}
    found |= {subjects.api_as("submit", "another"), subjects.event_job("team-b", "job"), *SYSTEM}
    return sorted(found)


async def refused_by(url: str, user: str, subjects: Sequence[str], expected: Refused) -> Refused:
    """Subjects that the server refuses to a user; waits until there are as many as expected."""
    by_lower = {one.lower(): one for one in subjects}  # the library reports errors in lower case
    assert len(by_lower) == len(subjects)
    found: Refused = {"publish": set(), "subscription": set()}

    async def on_error(error: Exception) -> None:
        what, subject = _DENIED.findall(str(error))[0]
        found[what.lower()].add(by_lower[subject.lower()])

    client = await nats.connect(url, user=user, password=f"of-{user}", error_cb=on_error, allow_reconnect=False)
    try:
        for subject in subjects:
            await client.publish(subject, b"{}")
            await client.subscribe(subject)
        await client.flush()
        await until(
            lambda: all(len(found[what]) >= len(expected[what]) for what in expected),
            deadline_s=20,
            what=f"{user} is refused what it may not use",
        )
    finally:
        await client.close()
    return found


@pytest.mark.timeout(120)
async def test_each_identity_may_use_its_subjects_and_no_others(tmp_path: Path) -> None:
    of = identities()
    subjects = subjects_of(of.values())
    users: list[dict[str, Any]] = [
        {
            "user": name,
            "password": f"of-{name}",
            "permissions": {"publish": may["publish"], "subscribe": may["subscribe"]},
        }
        for name, may in of.items()
    ]
    more = f"authorization {msgspec.json.encode({'users': users}).decode()}"
    checked = 0
    async with EmbeddedServer(tmp_path / "nats", more=more) as server:
        for name, may in of.items():
            expected = {
                what: {one for one in subjects if not any(covers(pattern, one) for pattern in may[column])}
                for column, what in (("publish", "publish"), ("subscribe", "subscription"))
            }
            assert all(0 < len(refused) < len(subjects) for refused in expected.values()), name
            assert await refused_by(server.url, name, subjects, expected) == expected, name
            checked += 2 * len(subjects)
    assert len(of) >= len(COMMANDS) + 10
    assert checked > 2000


@pytest.mark.parametrize(
    ("pattern", "subject", "is_covered"),
    [
        ("a.>", "a.b", True),
        ("a.>", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        (">", "a", True),
    ],
)
def test_what_a_pattern_covers(pattern: str, subject: str, *, is_covered: bool) -> None:
    assert covers(pattern, subject) == is_covered
