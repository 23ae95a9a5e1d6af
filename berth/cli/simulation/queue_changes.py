"""``berth what-if --queue``: queues of a recording that are declared otherwise."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from berth.cli.output import WRONG_USE, CommandError, listed
from berth.core.simulation.cluster_changes import nodes_of
from berth.core.simulation.planned_cluster import TimedFact
from berth.formats.queues.reader import read_queues
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.subjects import Subjects

_FORM: Final = re.compile(r"(?P<name>[^=]+)\.(?P<field>[A-Za-z]+)=(?P<value>.*)", re.DOTALL)
_FIELDS: Final = {
    "parent": "parent",
    "capability": "capability",
    "guarantee": "guarantee",
    "deserved": "deserved",
    "weight": "weight",
    "priority": "priority",
    "state": "state",
    "dequeueStrategy": "is_fifo",
    "namespaces": "namespaces",
    "perNamespace": "per_namespace",
}
"""Fields of a queue as its file has them, and as it has them here."""
_AMOUNTS: Final = frozenset({"capability", "guarantee", "deserved", "perNamespace"})


def with_queues(facts: Sequence[TimedFact], changes: Sequence[str], *, cell: str) -> list[TimedFact]:
    """Facts in which queues have other fields from the begin on, whatever is declared of them later.

    Args:
        facts: Facts of the cluster, by moment.
        changes: Changes such as ``research.capability=128``.
        cell: Name of the cell.

    Raises:
        CommandError: A change has no such form, or its field or value is wrong.
    """
    found = list(facts)
    for change in changes:
        name, field, value = _read(change, facts)
        found = _changed(found, name, field, value, Subjects(cell).fact_queue(name))
    return found


def _changed(facts: list[TimedFact], name: str, field: str, value: object, subject: str) -> list[TimedFact]:
    found: list[TimedFact] = []
    is_known = False
    for fact in facts:
        if fact.subject == subject:
            seen = body_of(open_envelope(fact.data), QueueSeen)
            is_known = is_known or not seen.gone
            queue = msgspec.structs.replace(seen.queue, **{field: value})
            found.append(fact._replace(data=encode(msgspec.structs.replace(seen, queue=queue))))
        else:
            found.append(fact)
    if not is_known:
        queue = msgspec.structs.replace(Queue(name), **{field: value})
        found.insert(0, TimedFact(0, subject, encode(QueueSeen(queue))))
    return found


def _read(change: str, facts: Sequence[TimedFact]) -> tuple[str, str, object]:
    """Queue, field and value of a change.

    Raises:
        CommandError: See :func:`with_queues`.
    """
    match = _FORM.fullmatch(change)
    if match is None or match["field"] not in _FIELDS:
        fields = listed(_FIELDS, len(_FIELDS))
        raise CommandError(
            f"--queue is {change}, expected NAME.FIELD=VALUE such as research.capability=128, with a field of {fields}",
            code=WRONG_USE,
        )
    field, value = match["field"], match["value"].strip()
    if field in _AMOUNTS and value.isdigit():
        value = f"{{{_resource(change, facts)}: {value}}}"
    if field == "guarantee":
        value = f"{{resource: {value}}}"
    reading = read_queues(
        f"{{apiVersion: berth/v1, kind: Queue, metadata: {{name: {match['name']}}}, spec: {{{field}: {value}}}}}"
    )
    if reading.errors:
        error = reading.errors[0]
        raise CommandError(f"--queue {change}: is {error.value}, expected {error.expected}", code=WRONG_USE)
    (queue,) = reading.queues
    return queue.name, _FIELDS[field], getattr(queue, _FIELDS[field])


def _resource(change: str, facts: Sequence[TimedFact]) -> str:
    """The resource of the chips of the cluster, for a number without one.

    Raises:
        CommandError: The cluster has chips of several resources, or of none.
    """
    found = sorted({node.resource for node in nodes_of(facts) if node.resource})
    if len(found) != 1:
        raise CommandError(
            f"--queue {change}: expected amounts such as {{huawei.com/Ascend910: 128}}: the nodes have"
            f" {listed(found) or 'no chips'}",
            code=WRONG_USE,
        )
    return found[0]
