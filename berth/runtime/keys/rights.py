"""What each user of NATS may publish and subscribe to, by subject; docs/operators.md has the same as a table."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.schemas.subjects import StreamName, Subjects, token

PERSON: Final = "berth"
"""Name under which the command connects: its replies come to ``_INBOX_berth``."""
_NATS: Final = "$_"
"""First letters of subjects that are not those of a cell."""


class Rights(NamedTuple):
    """Subjects, with wildcards."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


_EVERY_SERVICE: Final = Rights(
    (
        "_INBOX_<service>.>",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.CREATE.*",
        "$JS.API.STREAM.UPDATE.*",
        "$JS.API.STREAM.MSG.GET.*",
        "$JS.API.CONSUMER.>",
        "dead.>",
    ),
    ("_INBOX_<service>.>", "$SRV.>"),
)
_INVENTORY_FACTS: Final = (
    *("node.>", "topology.>", "pod.>", "member.>", "group.>", "ledger", "replacement.>", "usage.>", "namespace.>"),
    *("claim.>", "volume.>", "storage.>"),
)
_SERVICES: Final[dict[str, Rights]] = {
    "inventory": Rights((*(f"fact.{kind}" for kind in _INVENTORY_FACTS), "intake.>"), ()),
    "health": Rights(("fact.health.>",), ("report.health.*",)),
    "dispatcher": Rights(
        (
            *("ledger", "lease.>", "snapshot.>", "status.>", "score.>", "heartbeat.>", "fact.>"),
            "$JS.API.STREAM.PURGE.*",
            "$JS.API.STREAM.DELETE.<lease>",
        ),
        ("heartbeat.>",),
    ),
    "scorer": Rights((), ("score.>",)),
    "binder": Rights(("fact.outcome.>", "fact.unbound.>", "sim.bind", "sim.evict"), ()),
    "summary": Rights(("summary.>",), ()),
    "api": Rights(("intake.>", "event.>"), ("api.>",)),
    "nodesim": Rights(("fact.node.>", "fact.health.>", "fact.topology.>", "fact.pod.>"), ("sim.>",)),
}
_GATEWAY: Final = "gateway"
_GATEWAY_RIGHTS: Final = Rights(
    (
        "_INBOX_gateway.>",
        "$SRV.STATS",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.MSG.GET.<stream>",
        "$JS.API.CONSUMER.*.<stream>.>",
        "$JS.API.CONSUMER.MSG.NEXT.<stream>.>",
        "api.*",
        "api.*.*",
    ),
    ("_INBOX_gateway.>", "$SRV.>"),
)
"""All rights of the gateway, which strangers reach: it makes no stream, stores nothing, and reads some streams."""
_GATEWAY_STREAMS: Final = (
    *(StreamName.DEAD, StreamName.EVENTS, StreamName.FACTS, StreamName.LATEST, StreamName.LEASE, StreamName.LEDGER),
    *(StreamName.SKIPS, StreamName.SNAPSHOT, StreamName.STATUS),
)
SERVICES: Final = (*_SERVICES, _GATEWAY)
"""Names of the services; ``nodesim`` is for simulated clusters."""
ONE_PROCESS: Final = "cell"
"""User of all services in one process. Each of them has a connection and an inbox of its own."""
_PERSON: Final = Rights(
    (
        "_INBOX_berth.>",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.MSG.GET.*",
        "$JS.API.CONSUMER.>",
        "$SRV.STATS",
        "intake.>",
        "fact.drain.>",
        "fact.approval.>",
    ),
    ("_INBOX_berth.>",),
)
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "dead": ("dead.>",),
    "repair": ("ledger", "skip.>", "lease.>", "status.>", "heartbeat.dispatcher.question", "$JS.API.STREAM.PURGE.*"),
    "restore": (">", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*"),
}
COMMANDS: Final = tuple(_COMMANDS)
"""Commands that need more rights than the others."""


def rights_of_service(service: str, cell: str) -> Rights:
    """Rights of a service.

    Args:
        service: One of :data:`SERVICES`, or :data:`ONE_PROCESS`, which has the rights of all.
        cell: Name of the cell.
    """
    if service == ONE_PROCESS:
        every = [rights_of_service(one, cell) for one in SERVICES]
        return Rights(
            widest(subject for one in every for subject in one.publish),
            widest(subject for one in every for subject in one.subscribe),
        )
    if service == _GATEWAY:
        streams = [Subjects(cell).stream(name) for name in _GATEWAY_STREAMS]
        publish = [
            subject.replace("<stream>", stream)
            for subject in _GATEWAY_RIGHTS.publish
            for stream in (streams if "<stream>" in subject else [""])
        ]
        return _of_cell(publish, _GATEWAY_RIGHTS.subscribe, cell)
    own, lease = _SERVICES[service], Subjects(cell).stream(StreamName.LEASE)
    publish = [
        subject.replace("<service>", service).replace("<lease>", lease)
        for subject in (*_EVERY_SERVICE.publish, *own.publish)
    ]
    subscribe = [subject.replace("<service>", service) for subject in (*_EVERY_SERVICE.subscribe, *own.subscribe)]
    return _of_cell(publish, subscribe, cell)


def rights_of_person(cell: str, commands: Iterable[str] = ()) -> Rights:
    """Rights of a person who uses the command ``berth``.

    Args:
        cell: Name of the cell.
        commands: Those of :data:`COMMANDS` that the person uses too.
    """
    more = [subject for command in commands for subject in _COMMANDS[command]]
    return _of_cell((*_PERSON.publish, *more), _PERSON.subscribe, cell)


def rights_of_agent(cell: str, name: str) -> Rights:
    """Rights of an agent that reports the health of nodes over NATS, with the inbox ``_INBOX_<name>``."""
    inbox = f"_INBOX_{token(name)}.>"
    return _of_cell(("report.health.>", inbox), (inbox,), cell)


def rights_of_program(cell: str, identity: str, namespaces: Iterable[str]) -> Rights:
    """Rights of a program that uses the service for programs under its own identity, and sees events of namespaces.

    It has none in JetStream: the service gives it the events that are stored.

    Args:
        cell: Name of the cell.
        identity: Name of the program.
        namespaces: Whose events it sees as they are published; ``*`` for all.

    Source: docs/programs.md, "Identity".
    """
    root, name = Subjects(cell).root, token(identity)
    inbox = f"_INBOX_{name}.>"
    events = [f"{root}event.job.{'*' if one == '*' else token(one)}.>" for one in namespaces]
    return Rights((f"{root}api.*.{name}", inbox), (inbox, *events))


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


def _of_cell(publish: Iterable[str], subscribe: Iterable[str], cell: str) -> Rights:
    root = Subjects(cell).root

    def whole(subjects: Iterable[str]) -> tuple[str, ...]:
        return tuple(subject if subject[0] in _NATS else root + subject for subject in subjects)

    return Rights(whole(publish), whole(subscribe))
