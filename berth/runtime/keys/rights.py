"""What each user of NATS may publish and subscribe to, by subject; docs/reference/trust.md has the same as a table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from berth.runtime.inboxes import (
    ANSWERS,
    CALLERS,
    DELIVERIES,
    DISCOVERERS,
    PROGRAM,
    ROOT,
    inbox_of,
    inbox_of_agent,
    inbox_of_person,
)
from berth.schemas.subjects import StreamName, Subjects, token

PERSON: Final = "berth"
"""Name of the person that the command is without credentials."""
STREAMS: Final = "streams"
"""User of ``berth streams apply``, the only one that every cell has with this right."""
_NATS: Final = "$_"
"""First letters of subjects that are not those of a cell."""
_STREAM: Final = re.compile("<([A-Za-z]+)>")
_FITS_BYTES: Final = 2_100
"""Most bytes of the rights of a user: its token must fit in one line of NATS, of 4 KiB."""


class Rights(NamedTuple):
    """Subjects, with wildcards.

    Attributes:
        publish: What a user may publish.
        subscribe: What it may subscribe to.
        refused: What it may not publish although ``publish`` covers it.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    refused: tuple[str, ...] = ()


class Bounds(NamedTuple):
    """Bounds of a user.

    Attributes:
        subscriptions: Most subscriptions of a connection.
        payload_bytes: Longest message, with its headers.
        data_bytes: All that a connection sends; nats-server 2.15 does not count it.
    """

    subscriptions: int
    payload_bytes: int
    data_bytes: int


BOUNDS: Final[Mapping[str, Bounds]] = {
    "service": Bounds(1_000, 8 << 20, 1 << 50),
    "person": Bounds(1_000, 8 << 20, 1 << 50),
    "program": Bounds(10_000, 1 << 20, 1 << 40),
    "agent": Bounds(10, 64 << 10, 1 << 40),
}
"""Of each kind of user. A program that waits for a job has a subscription for it."""
_EVERY_SERVICE: Final = Rights(("$JS.API.STREAM.INFO.*",), ("$SRV.>",))
_INVENTORY_FACTS: Final = (
    *("node.>", "topology.>", "pod.>", "member.>", "group.>", "ledger", "replacement.>", "usage.>", "namespace.>"),
    *("claim.>", "volume.>", "storage.>", "queue.>"),
)
_SERVICES: Final[dict[str, Rights]] = {
    "inventory": Rights((*(f"fact.{kind}" for kind in _INVENTORY_FACTS), "intake.>"), ()),
    "health": Rights(("fact.health.>",), ("report.health.*",)),
    "dispatcher": Rights(
        (
            *("ledger", "lease.>", "snapshot.>", "status.>", "score.>", "heartbeat.>", "fact.>", "dead.>"),
            *(f"$JS.API.STREAM.PURGE.<{name}>" for name in ("LEDGER", "SNAPSHOT", "STATUS", "LATEST")),
            *(f"$JS.API.STREAM.UPDATE.<{name}>" for name in ("STATUS", "LATEST", "LEASE")),
            "$JS.API.STREAM.CREATE.<LEASE>",
            "$JS.API.STREAM.DELETE.<LEASE>",
        ),
        ("heartbeat.>",),
    ),
    "scorer": Rights((), ("score.>",)),
    "binder": Rights(("fact.outcome.>", "fact.unbound.>", "sim.bind", "sim.evict"), ()),
    "summary": Rights(("summary.>",), ()),
    "api": Rights(("intake.>", "event.>", "fact.drain.>", "fact.approval.>"), ("api.>", "gate.>")),
    "nodesim": Rights(("fact.node.>", "fact.health.>", "fact.topology.>", "fact.pod.>"), ("sim.>",)),
    "gateway": Rights(("$SRV.STATS", "gate.*.*"), ()),
}
_HISTORY: Final = (StreamName.FACTS, StreamName.LATEST, StreamName.LEDGER, StreamName.SKIPS, StreamName.SNAPSHOT)
"""What a reader of facts and ledger reads."""
_READS: Final[dict[str, tuple[StreamName, ...]]] = {
    "inventory": (*_HISTORY, StreamName.STATUS),
    "health": (StreamName.FACTS, StreamName.LATEST),
    "dispatcher": (*_HISTORY, StreamName.DEAD, StreamName.INTAKE, StreamName.LEASE, StreamName.STATUS),
    "scorer": _HISTORY,
    "binder": (*_HISTORY, StreamName.STATUS),
    "summary": (*_HISTORY, StreamName.STATUS, StreamName.SUMMARY),
    "api": (*_HISTORY, StreamName.EVENTS, StreamName.INTAKE, StreamName.STATUS),
    "nodesim": (StreamName.FACTS, StreamName.LATEST),
    "gateway": (*_HISTORY, StreamName.DEAD, StreamName.EVENTS, StreamName.LEASE, StreamName.STATUS),
}
SERVICES: Final = tuple(_SERVICES)
"""Names of the services; ``nodesim`` is for simulated clusters."""
ONE_PROCESS: Final = "cell"
"""User of all services in one process. Each of them has a connection and an inbox of its own."""
TAKEN: Final = frozenset({*SERVICES, ONE_PROCESS, PERSON, STREAMS, "person", "agent"})
"""Names that have a meaning, which no program and no agent may have."""
_READS_ALL: Final = (
    "$JS.API.STREAM.MSG.GET.*",
    *(f"$JS.API.CONSUMER.{verb}.>" for verb in ("CREATE", "DELETE", "INFO", "MSG.NEXT")),
)
"""What who reads all streams may publish."""
_PERSON: Final = Rights(
    (
        "$JS.API.STREAM.INFO.*",
        *_READS_ALL,
        "$SRV.STATS",
        "intake.>",
        "fact.drain.>",
        "fact.approval.>",
        "fact.queue.>",
    ),
    (),
)
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "dead": ("dead.>",),
    "repair": (
        *("ledger", "skip.>", "lease.>", "status.>", "heartbeat.dispatcher.question"),
        "$JS.API.STREAM.PURGE.<SNAPSHOT>",
    ),
    "restore": (">", *(f"$JS.API.STREAM.{verb}.<stream>" for verb in ("CREATE", "UPDATE", "DELETE"))),
    "streams": ("$JS.API.STREAM.CREATE.<stream>", "$JS.API.STREAM.UPDATE.<stream>"),
}
COMMANDS: Final = tuple(_COMMANDS)
"""Commands that need more rights than the others."""


def rights_of_service(service: str, cell: str, *, makes_streams: bool = False) -> Rights:
    """Rights of a service.

    Args:
        service: One of :data:`SERVICES`, or :data:`ONE_PROCESS`, which has the rights of all.
        cell: Name of the cell.
        makes_streams: Whether it makes the streams of the cell, and corrects them.
    """
    more = _COMMANDS["streams"] if makes_streams else ()
    if service == ONE_PROCESS:
        every = [_of_service(one) for one in SERVICES]
        return _of_cell(
            widest(subject for one in every for subject in (*one.publish, *more, *_READS_ALL)),
            widest(subject for one in every for subject in one.subscribe),
            cell,
        )
    own = _of_service(service)
    return _of_cell((*own.publish, *more), own.subscribe, cell, reads=_READS[service], refused=own.refused)


def _of_service(service: str) -> Rights:
    own, inbox = _SERVICES[service], inbox_of(service)
    answers = [f"{ROOT}.{caller}.{ANSWERS}.>" for caller in (*CALLERS.get(service, ()), *DISCOVERERS)]
    asked = tuple(dict.fromkeys(answers))
    refused: tuple[str, ...] = ()
    if f"{ROOT}.{PROGRAM}.{ANSWERS}.>" in asked:  # a program has an inbox of the form of that of a service
        refused = (*(f"{inbox_of(one)}.>" for one in SERVICES if one not in CALLERS[service]), f"{ROOT}.agent.>")
    return Rights(
        (*asked, *_EVERY_SERVICE.publish, *own.publish),
        (*_own(inbox), *_EVERY_SERVICE.subscribe, *own.subscribe),
        refused,
    )


def _own(inbox: str) -> tuple[str, str]:
    """What is subscribed of an inbox."""
    return f"{inbox}.{ANSWERS}.>", f"{inbox}.{DELIVERIES}.>"


def _reads(streams: Iterable[str]) -> tuple[str, ...]:
    """What who reads streams may publish."""
    return tuple(
        f"$JS.API.{verb}"
        for stream in streams
        for verb in (f"STREAM.MSG.GET.{stream}", f"CONSUMER.*.{stream}.>", f"CONSUMER.MSG.NEXT.{stream}.>")
    )


def rights_of_person(cell: str, commands: Iterable[str], *, name: str = PERSON) -> Rights:
    """Rights of a person who uses the command ``berth``.

    Args:
        cell: Name of the cell.
        commands: Those of :data:`COMMANDS` that the person uses too.
        name: The person.
    """
    more = [subject for command in commands for subject in _COMMANDS[command]]
    return _of_cell((*_PERSON.publish, *more), _own(inbox_of_person(name)), cell)


def rights_of_agent(cell: str, node: str) -> Rights:
    """Rights of an agent that reports the health of its node over NATS."""
    return _of_cell((f"report.health.{token(node)}",), _own(inbox_of_agent(node)), cell)


def rights_of_program(cell: str, identity: str, namespaces: Iterable[str]) -> Rights:
    """Rights of a program that uses the service for programs under its own identity, and sees events of namespaces.

    It has none in JetStream: the service gives it the events that are stored.

    Args:
        cell: Name of the cell.
        identity: Name of the program.
        namespaces: Whose events it sees as they are published; ``*`` for all.

    Source: docs/programs.md, "Identity".
    """
    events = [f"event.job.{'*' if one == '*' else token(one)}.>" for one in namespaces]
    return _of_cell((f"api.*.{token(identity)}",), (*_own(inbox_of(identity)), *events), cell)


def widest(patterns: Iterable[str]) -> tuple[str, ...]:
    """Those that no other one covers, each once, in their order: the token of a user must fit in one line of 4 KiB."""
    found = tuple(dict.fromkeys(patterns))
    return tuple(one for one in found if not any(covers(other, one) for other in found if other != one))


def covers(pattern: str, narrower: str) -> bool:
    """Whether a subject with wildcards covers another one, or each subject of another one with wildcards."""
    tokens, others = pattern.split("."), narrower.split(".")
    for number, wanted in enumerate(tokens):
        if wanted == ">":
            return len(others) > number
        if number >= len(others) or others[number] == ">" or wanted not in {"*", others[number]}:
            return False
    return len(tokens) == len(others)


def _of_cell(
    publish: Iterable[str],
    subscribe: Iterable[str],
    cell: str,
    *,
    reads: Sequence[StreamName] = (),
    refused: tuple[str, ...] = (),
) -> Rights:
    """Whole subjects; ``<NAME>`` is a stream, ``<stream>`` each of them."""
    subjects = Subjects(cell)

    def whole(patterns: Iterable[str]) -> tuple[str, ...]:
        return tuple(subject if subject[0] in _NATS else subjects.root + subject for subject in patterns)

    publish = tuple(publish)
    named = [
        _STREAM.sub(subjects.stream(stream), pattern)
        for pattern in publish
        for stream in (_streams_in(pattern) or (StreamName.FACTS,))
    ]
    stored = _reads(subjects.stream(one) for one in reads)
    rights = Rights(tuple(dict.fromkeys(whole((*named, *stored)))), whole(subscribe), refused)
    if sum(len(subject) for part in rights for subject in part) <= _FITS_BYTES:
        return rights
    # The name of the cell is so long that each stream by its name does not fit.
    any_stream = (_STREAM.sub("*", pattern) for pattern in publish)
    return rights._replace(publish=widest(whole((*any_stream, *(_READS_ALL if reads else ())))))


def _streams_in(pattern: str) -> tuple[StreamName, ...]:
    """Streams for which a pattern stands."""
    found = _STREAM.search(pattern)
    if found is None:
        return ()
    return tuple(StreamName) if found[0] == "<stream>" else (StreamName(found[1]),)
