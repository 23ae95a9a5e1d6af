"""Bounds of one request: what is at them is accepted, what is above is refused with field, value and bound."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from berth.core.requests.bounds import above_bounds
from berth.schemas.constraints import Expression, Term, Toleration
from berth.schemas.intake import (
    ANNOTATIONS,
    BOUNDS,
    BYTES,
    CONTAINERS,
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
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from tests.support.cells import a_job


class Case(NamedTuple):
    """What has so many of something, and the field of a refusal."""

    bound: Bound
    field: str
    job: Callable[[int], JobRequest]


def many(count: int) -> dict[str, str]:
    return {f"key-{number}": "" for number in range(count)}


def of_task(**fields: object) -> JobRequest:
    return a_job("j", tasks=[Task("worker", 1, 1, **fields)])  # type: ignore[arg-type]  # fields of a task


def constrained(**fields: object) -> JobRequest:
    return of_task(constraints=PodConstraints(**fields))  # type: ignore[arg-type]  # fields of constraints


def conditions(count: int, *, values: int = 0) -> tuple[Expression, ...]:
    return tuple(Expression(f"k{number}", "In", ("v",) * values) for number in range(count))


def near(count: int) -> tuple[PodTerm, ...]:
    return tuple(PodTerm(f"zone-{number}") for number in range(count))


def spread(count: int) -> tuple[SpreadTerm, ...]:
    return tuple(SpreadTerm(f"zone-{number}", 1) for number in range(count))


CASES = {
    "tasks": Case(TASKS, "tasks", lambda n: a_job("j", tasks=[Task(f"t{at}", 1, 1) for at in range(n)])),
    "many_tasks": Case(
        SHAPES, "tasks", lambda n: a_job("j", tasks=[Task(f"t{at}", 1, 1, cpu_milli=at + 1) for at in range(n)])
    ),
    "uid": Case(UID, "uid", lambda n: a_job("j", uid="u" * n)),
    "queue": Case(KEY, "queue", lambda n: a_job("j", queue="q" * n)),
    "resource": Case(KEY, "resource", lambda n: a_job("j", resource="r" * n)),
    "labels": Case(LABELS, "labels", lambda n: a_job("j", labels=many(n))),
    "annotations": Case(ANNOTATIONS, "annotations", lambda n: a_job("j", annotations=many(n))),
    "key": Case(KEY, "labels", lambda n: a_job("j", labels={"k" * n: ""}, node_selector={})),
    "text": Case(TEXT, "annotations", lambda n: a_job("j", annotations={"k": "v" * (n - 1)})),
    "selector": Case(SELECTOR, "node_selector", lambda n: a_job("j", node_selector=many(n))),
    "near-labels": Case(SELECTOR, "near", lambda n: a_job("j", near=many(n))),
    "task": Case(KEY, "tasks[0].name", lambda n: a_job("j", tasks=[Task("t" * n, 1, 1)])),
    "task-labels": Case(LABELS, "tasks[0].labels", lambda n: of_task(labels=many(n))),
    "task-selector": Case(SELECTOR, "tasks[0].node_selector", lambda n: of_task(node_selector=many(n))),
    "tolerations": Case(TOLERATIONS, "tasks[0].tolerations", lambda n: of_task(tolerations=[Toleration()] * n)),
    "affinity": Case(TERMS, "tasks[0].affinity", lambda n: of_task(affinity=[Term(())] * n)),
    "conditions": Case(EXPRESSIONS, "tasks[0].affinity", lambda n: of_task(affinity=[Term(conditions(n))])),
    "values": Case(VALUES, "tasks[0].affinity", lambda n: of_task(affinity=[Term(conditions(1, values=n))])),
    "ports": Case(
        PORTS, "tasks[0].constraints.ports", lambda n: constrained(ports=tuple(HostPort(at + 1) for at in range(n)))
    ),
    "resources": Case(
        RESOURCES,
        "tasks[0].constraints.resources",
        lambda n: constrained(resources=tuple((f"r{at}", 1) for at in range(n))),
    ),
    "claims": Case(
        VOLUMES, "tasks[0].constraints.claims", lambda n: constrained(claims=tuple(f"c{at}" for at in range(n)))
    ),
    "pod-affinity": Case(TERMS, "tasks[0].constraints.affinity", lambda n: constrained(affinity=near(n))),
    "anti-affinity": Case(TERMS, "tasks[0].constraints.anti_affinity", lambda n: constrained(anti_affinity=near(n))),
    "pod-selector": Case(
        EXPRESSIONS,
        "tasks[0].constraints.affinity",
        lambda n: constrained(affinity=(PodTerm("zone", LabelSelector(conditions(n))),)),
    ),
    "namespaces": Case(
        VALUES,
        "tasks[0].constraints.affinity",
        lambda n: constrained(affinity=(PodTerm("zone", namespaces=("a",) * n),)),
    ),
    "spread": Case(TERMS, "tasks[0].constraints.spread", lambda n: constrained(spread=spread(n))),
    "preferred-spread": Case(
        TERMS, "tasks[0].constraints.preferred_spread", lambda n: constrained(preferred_spread=spread(n))
    ),
    "preferred-nodes": Case(
        TERMS,
        "tasks[0].constraints.preferred_nodes",
        lambda n: constrained(preferred_nodes=(PreferredNodes(1, Term(())),) * n),
    ),
    "preferred-near": Case(
        TERMS,
        "tasks[0].constraints.preferred_near",
        lambda n: constrained(preferred_near=tuple(PreferredPods(1, term) for term in near(n))),
    ),
    "preferred-apart": Case(
        TERMS,
        "tasks[0].constraints.preferred_apart",
        lambda n: constrained(preferred_apart=tuple(PreferredPods(1, term) for term in near(n))),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_request_at_a_bound_is_accepted_and_one_above_it_is_refused(case: Case) -> None:
    assert above_bounds(case.job(case.bound.most)) is None
    refusal = above_bounds(case.job(case.bound.most + 1))
    assert refusal is not None
    assert (refusal.code, refusal.field) == ("too-large", case.field)
    assert refusal.value == f"{case.bound.most + 1} {case.bound.name}"
    assert refusal.expected == case.bound.expected


def test_a_request_of_many_bytes_is_refused() -> None:
    labels = {f"key-{number}": "v" * 200 for number in range(250)}
    refusal = above_bounds(a_job("j", tasks=[Task(f"t{at}", 1, 1, labels=labels) for at in range(60)]))
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.expected) == ("too-large", "job", BYTES.expected)


def test_pods_that_differ_in_their_claims_and_names_are_one_kind() -> None:
    tasks = [Task(f"t{at}", 1, 1, constraints=PodConstraints(claims=(f"claim-{at}",))) for at in range(SHAPES.most + 1)]
    assert above_bounds(a_job("j", tasks=tasks)) is None


def test_every_bound_of_a_request_has_a_case() -> None:
    of_pods_alone = {CONTAINERS.name}  # a request has no containers
    assert {case.bound.name for case in CASES.values()} | {BYTES.name} | of_pods_alone == {one.name for one in BOUNDS}
