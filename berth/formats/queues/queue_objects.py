"""Queues of Volcano and of Berth, as objects.

Berth's own has the fields of Volcano's, its state and what Volcano's has as annotations in ``spec``, and no others::

    apiVersion: berth/v1
    kind: Queue
    metadata: {name: research}
    spec:
      parent: lab
      capability: {huawei.com/Ascend910: 128, cpu: 3072}
      guarantee: {resource: {huawei.com/Ascend910: 32}}
      deserved: {huawei.com/Ascend910: 64}
      weight: 2
      priority: 1
      reclaimable: true
      dequeueStrategy: traverse
      state: Open
      namespaces: [nlp, vision]
      perNamespace: {huawei.com/Ascend910: 64}

Source: docs/queues.md, "Fields".
"""

import re
from typing import Any, Final

import msgspec

from berth.formats.kubernetes import policies
from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.formats.queues.fields import Fields, QueueError
from berth.formats.yaml_tree import Tree
from berth.schemas.queues.queue import PRIORITY_MAX, STATES, WEIGHT_MAX, Queue

VOLCANO: Final = (PODGROUP_VERSION, "Queue")
OWN: Final = ("berth/v1", "Queue")
NAMESPACES: Final = "berth/namespaces"
"""Annotation of a queue of Volcano: its namespaces, with commas between them."""
PER_NAMESPACE: Final = "berth/per-namespace"
"""Annotation of a queue of Volcano: limits of each namespace, a JSON object of quantities."""
_FIFO: Final = "fifo"
_STRATEGIES: Final = ("traverse", _FIFO)
_FIELDS: Final = (
    "parent", "capability", "guarantee", "deserved", "weight", "priority", "reclaimable", "dequeueStrategy",
)  # fmt: skip
_OWN_FIELDS: Final = (*_FIELDS, "state", "namespaces", "perNamespace")
_UNUSED: Final = ("affinity", "type", "extendClusters")
_UNUSED_ANNOTATIONS: Final = (
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/nodegroup-resource-limits",
)
_DIGITS: Final = re.compile(r"\d+")


def read_queue(place: Tree, fields: Fields, *, is_own: bool) -> Queue:
    """A queue; wrong fields are in ``fields`` and in the queue, which is then not valid.

    Args:
        place: The object.
        fields: Keeps what is wrong.
        is_own: It is Berth's own, and may have no unknown fields.

    Raises:
        DocumentError: It has no name, without which it is none.
    """
    metadata = place.need("metadata", "the metadata of the queue")
    name = metadata.need("name", "the name of the queue").dns_name()
    spec = fields.read(lambda: _mapping(place, "spec"), None)
    if is_own:
        fields.read(lambda: place.only(("apiVersion", "kind", "metadata", "spec")), None)
        if spec is not None:
            fields.read(lambda: spec.only(_OWN_FIELDS), None)
    queue = _spec(name, spec, fields, least_weight=1 if is_own else 0)
    queue = _own(queue, spec, fields) if is_own else _volcano(queue, place, metadata, spec, fields)
    wrong = [f"{error.path}: is {error.value}, expected {error.expected}" for error in fields.errors]
    return msgspec.structs.replace(queue, wrong=wrong, notes=list(fields.notes))


def queue_of_object(found: policies.Queue) -> Queue | None:
    """A queue of the API server; None if its name is none."""
    meta = found.metadata
    metadata = {"name": meta.name, "annotations": meta.annotations, "creationTimestamp": meta.creation_timestamp}
    parts = {"metadata": metadata, "spec": found.spec, "status": found.status}
    try:
        return read_queue(Tree(parts, "", 0, QueueError), Fields(), is_own=False)
    except QueueError:
        return None


def _mapping(place: Tree, key: str) -> Tree | None:
    """Field ``key`` of a mapping, a mapping itself; None if it is missing or null."""
    found = place.find(key)
    if found is not None:
        found.mapping()
    return found


def _spec(name: str, spec: Tree | None, fields: Fields, *, least_weight: int) -> Queue:
    guarantee = fields.optional(spec, "guarantee", lambda field: _mapping(field, "resource"), None)
    return Queue(
        name,
        parent=fields.optional(spec, "parent", lambda field: field.dns_name() if field.value != "" else "", ""),
        capability=fields.optional(spec, "capability", fields.amounts, {}),
        guarantee={} if guarantee is None else fields.amounts(guarantee),
        deserved=fields.optional(spec, "deserved", fields.amounts, {}),
        weight=fields.optional(spec, "weight", lambda field: field.whole(least=least_weight, most=WEIGHT_MAX), 1) or 1,
        priority=fields.optional(spec, "priority", lambda field: field.whole(least=0, most=PRIORITY_MAX), 0),
        reclaimable=fields.optional(spec, "reclaimable", lambda field: field.flag(), otherwise=True),
        is_fifo=fields.optional(spec, "dequeueStrategy", lambda field: field.choice(_STRATEGIES), "") == _FIFO,
    )


def _own(queue: Queue, spec: Tree | None, fields: Fields) -> Queue:
    return msgspec.structs.replace(
        queue,
        state=fields.optional(spec, "state", lambda field: field.choice(STATES), ""),
        namespaces=fields.optional(spec, "namespaces", _namespaces, None),
        per_namespace=fields.optional(spec, "perNamespace", fields.amounts, {}),
    )


def _namespaces(field: Tree) -> list[str] | None:
    return sorted({item.dns_label() for item in field.items()})


def _volcano(queue: Queue, place: Tree, metadata: Tree, spec: Tree | None, fields: Fields) -> Queue:
    fields.unused(spec, _UNUSED)
    annotations = fields.read(lambda: _mapping(metadata, "annotations"), None)
    fields.unused(annotations, _UNUSED_ANNOTATIONS)
    status = fields.read(lambda: _mapping(place, "status"), None)
    state = fields.optional(status, "state", lambda field: field.text() if field.value != "" else "", "")
    if state and state not in STATES:
        fields.notes.append(f"status.state is {state!r}, which counts as Closed")
        state = "Unknown"
    created = fields.optional(metadata, "creationTimestamp", lambda field: field.text(), "")
    return msgspec.structs.replace(
        queue,
        state=state,
        created=int("".join(_DIGITS.findall(created))[:14] or 0),
        namespaces=fields.optional(annotations, NAMESPACES, _listed, None),
        per_namespace=fields.optional(annotations, PER_NAMESPACE, lambda field: fields.amounts(_json(field)), {}),
    )


def _listed(field: Tree) -> list[str] | None:
    parts = [part.strip() for part in field.text("namespaces with commas between them").split(",")]
    return sorted({field.child(str(at), part).dns_label() for at, part in enumerate(parts)})


def _json(field: Tree) -> Tree:
    expected = 'a JSON object of quantities, such as {"huawei.com/Ascend910": 16}'
    try:
        found: Any = msgspec.json.decode(field.text(expected))
    except msgspec.DecodeError as error:
        raise field.wrong(expected) from error
    if not isinstance(found, dict):
        raise field.wrong(expected)
    return Tree(found, field.path, field.document, field.error)
