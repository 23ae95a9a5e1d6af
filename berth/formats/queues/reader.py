"""Queues from YAML text of one or several documents: queues of Volcano, Berth's own, and lists of them."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from berth.formats.queues.fields import Fields, QueueError
from berth.formats.queues.queue_objects import OWN, VOLCANO, read_queue
from berth.formats.yaml_documents import read_documents
from berth.formats.yaml_tree import DocumentError, Tree, nearest
from berth.schemas.queues.queue import Queue

_LISTS: Final = frozenset({("v1", "List"), (VOLCANO[0], "QueueList")})
_WORDS: Final = f"{VOLCANO[0]} or {OWN[0]}"


@dataclass(frozen=True, slots=True)
class QueueReading:
    """Content of a text.

    Attributes:
        queues: Queues in the order of the text; each name once, the first of several. Those with wrong fields are
            among them, and not valid.
        errors: All errors, each with document, field, value and valid values.
        skipped: Kinds and names of objects that are no queues.
    """

    queues: list[Queue]
    errors: list[DocumentError]
    skipped: list[str]


def read_queues(text: str) -> QueueReading:
    """All queues of a YAML or JSON text, and all errors."""
    reading = QueueReading([], [], [])
    try:
        documents = read_documents(text, QueueError)
    except DocumentError as error:
        return QueueReading([], [error], [])
    names: set[str] = set()
    for document in documents:
        fields = Fields()
        for place in fields.read(partial(_objects, document), []):
            _read(place, reading, names)
        reading.errors.extend(fields.errors)
    if not reading.queues and not reading.errors:
        found = f"only {', '.join(reading.skipped[:3])}" if reading.skipped else "nothing"
        reading.errors.append(QueueError(document=0, path="kind", value=found, expected="at least one Queue"))
    return reading


def _objects(document: Tree) -> list[Tree]:
    """The document itself, or the entries of a list."""
    if _kind(document) not in _LISTS:
        return [document]
    return document.items_of("items")


def _kind(place: Tree) -> tuple[str, str]:
    kind = place.need("kind", "the kind of the object").text()
    return place.need("apiVersion", "the version of the object's kind").text(), kind


def _read(place: Tree, reading: QueueReading, names: set[str]) -> None:
    fields = Fields()
    try:
        version, kind = _kind(place)
        if kind != OWN[1]:
            name = place.dig("metadata", "name")
            reading.skipped.append(f"{kind} {'' if name is None else name.value}".strip())
            return
        if (version, kind) not in {OWN, VOLCANO}:
            raise place.need("apiVersion", _WORDS).wrong(nearest(version, (OWN[0], VOLCANO[0])))
        queue = read_queue(place, fields, is_own=(version, kind) == OWN)
        if queue.name in names:
            name = place.need("metadata", "").need("name", "")
            raise name.wrong(f"another name: queue {queue.name} is given twice")
    except DocumentError as error:
        reading.errors.extend([*fields.errors, error])
        return
    reading.errors.extend(fields.errors)
    names.add(queue.name)
    reading.queues.append(queue)
