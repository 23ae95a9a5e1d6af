"""Bounds of one request: what is above them is refused before anything else is read of it.

One request delays the decisions about all others, so none may be arbitrarily large. The numbers are in
:mod:`berth.schemas.intake`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from berth.schemas.constraints import Term
from berth.schemas.envelope import encode
from berth.schemas.intake import (
    ANNOTATIONS,
    BYTES,
    EXPRESSIONS,
    KEY,
    LABELS,
    PORTS,
    RESOURCES,
    SELECTOR,
    SHAPES,
    TASKS,
    TERMS,
    TEXT,
    TOLERATIONS,
    UID,
    VALUES,
    VOLUMES,
    Bound,
    JobRequest,
    Task,
)
from berth.schemas.pod_constraints import LabelSelector, PodConstraints, PodTerm
from berth.schemas.refusal import Code, Refusal

TOO_LARGE: Final[Code] = "too-large"
_Count: TypeAlias = tuple[str, int, Bound]
"""A field, what it has of something that is bounded, and the bound."""
_SHORT: Final = 4_096
"""Characters of all values of a small request."""
_SMALL: Final = 16
"""Tasks, and labels with annotations, up to which no field that is counted makes a request long."""


def above_bounds(request: JobRequest) -> Refusal | None:
    """Refusal of a request that is larger than any may be, with the first field that is; None if it is not."""
    if _is_small(request):
        return None
    for field, count, bound in _counts(request):
        if count > bound.most:
            return _refusal(field, count, bound)
    return None


def _is_small(request: JobRequest) -> bool:
    """Whether a request is certainly within all bounds: nearly all are, and a look at each count takes longer."""
    if len(request.tasks) != 1 or request.near:
        return False
    (task,) = request.tasks
    if task.labels or task.node_selector or task.affinity or task.tolerations or task.constraints is not None:
        return False
    longest = KEY.most
    if len(task.name) > longest or len(request.resource) > longest or len(request.queue) > longest:
        return False
    if len(request.uid) > UID.most:
        return False
    texts = characters = 0
    for given in (request.labels, request.annotations, request.node_selector):
        for key, value in given.items():
            if len(key) > longest:
                return False
            texts += 1
            characters += len(value)
    return texts <= _SMALL and characters <= _SHORT


def above_bytes(size_bytes: int) -> Refusal | None:
    """Refusal of a stored request of so many bytes if these are too many, whatever it says."""
    return _refusal("job", size_bytes, BYTES) if size_bytes > BYTES.most else None


def _refusal(field: str, count: int, bound: Bound) -> Refusal:
    return Refusal(code=TOO_LARGE, field=field, value=f"{count} {bound.name}", expected=bound.expected)


def _counts(request: JobRequest) -> Iterator[_Count]:
    """Counts of a request, the cheapest first: each is only taken when those before are within their bounds."""
    tasks = request.tasks
    yield ("tasks", len(tasks), TASKS)
    yield ("uid", len(request.uid), UID)
    yield ("resource", len(request.resource), KEY)
    yield ("queue", len(request.queue), KEY)
    yield from _texts("labels", request.labels, LABELS)
    yield from _texts("annotations", request.annotations, ANNOTATIONS)
    yield from _texts("node_selector", request.node_selector, SELECTOR)
    yield from _texts("near", request.near, SELECTOR)
    for index, task in enumerate(tasks):
        yield from _of_task(f"tasks[{index}]", task)
    if len(tasks) > SHAPES.most:
        yield ("tasks", len({_kind(task) for task in tasks}), SHAPES)
    if len(tasks) > _SMALL or len(request.labels) + len(request.annotations) > _SMALL:
        yield ("job", len(encode(request)), BYTES)


def _of_task(field: str, task: Task) -> Iterator[_Count]:
    yield (f"{field}.name", len(task.name), KEY)
    yield (f"{field}.tolerations", len(task.tolerations), TOLERATIONS)
    if task.labels:
        yield from _texts(f"{field}.labels", task.labels, LABELS)
    if task.node_selector:
        yield from _texts(f"{field}.node_selector", task.node_selector, SELECTOR)
    if task.affinity:
        yield from _of_terms(f"{field}.affinity", task.affinity)
    if task.constraints is not None:
        yield from _of_constraints(f"{field}.constraints", task.constraints)


def _of_constraints(field: str, wanted: PodConstraints) -> Iterator[_Count]:
    yield (f"{field}.ports", len(wanted.ports), PORTS)
    yield (f"{field}.resources", len(wanted.resources), RESOURCES)
    yield (f"{field}.claims", len(wanted.claims), VOLUMES)
    yield from _of_terms(f"{field}.preferred_nodes", [one.term for one in wanted.preferred_nodes])
    yield from _of_pod_terms(f"{field}.affinity", wanted.affinity)
    yield from _of_pod_terms(f"{field}.anti_affinity", wanted.anti_affinity)
    yield from _of_pod_terms(f"{field}.preferred_near", [one.term for one in wanted.preferred_near])
    yield from _of_pod_terms(f"{field}.preferred_apart", [one.term for one in wanted.preferred_apart])
    for name, spread in (("spread", wanted.spread), ("preferred_spread", wanted.preferred_spread)):
        yield from _of_selectors(f"{field}.{name}", spread, [one.selector for one in spread])


def _of_pod_terms(field: str, terms: Collection[PodTerm]) -> Iterator[_Count]:
    yield from _of_selectors(
        field, terms, [each for term in terms for each in (term.selector, term.namespace_selector)]
    )
    yield (field, sum(len(term.namespaces) for term in terms), VALUES)


def _of_selectors(field: str, terms: Collection[object], selectors: Iterable[LabelSelector | None]) -> Iterator[_Count]:
    yield (field, len(terms), TERMS)
    yield from _of_conditions(field, [Term(one.expressions) for one in selectors if one is not None])


def _of_terms(field: str, terms: Collection[Term]) -> Iterator[_Count]:
    yield (field, len(terms), TERMS)
    yield from _of_conditions(field, terms)


def _of_conditions(field: str, terms: Collection[Term]) -> Iterator[_Count]:
    yield (field, max((len(term.expressions) for term in terms), default=0), EXPRESSIONS)
    yield (field, sum(len(one.values) for term in terms for one in term.expressions), VALUES)


def _texts(field: str, given: Mapping[str, str], bound: Bound) -> Iterator[_Count]:
    """Counts of a mapping of texts: its entries, its longest key, and its characters."""
    if given:
        yield (field, len(given), bound)
        yield (field, max(map(len, given)), KEY)
        yield (field, sum(map(len, given)) + sum(map(len, given.values())), TEXT)


def _kind(task: Task) -> tuple[object, ...]:
    """What distinguishes the pods of a task for the choice of nodes. Which claims they have does not."""
    wanted = task.constraints
    others = msgspec.structs.replace(wanted, claims=()) if wanted is not None and wanted.claims else wanted
    selector = tuple(sorted(task.node_selector.items()))
    amounts = (task.chips, task.cpu_milli, task.memory_mib)
    return (*amounts, selector, tuple(task.affinity), tuple(task.tolerations), others)
