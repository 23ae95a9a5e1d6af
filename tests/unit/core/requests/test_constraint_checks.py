"""Constraints that cannot be judged are refused, and the refusal names the field, the value and what would be right."""

import pytest

from berth.core.explain.refusal_text import sentence
from berth.core.requests.job_validation import ValidJob, validate
from berth.schemas.constraints import Expression
from berth.schemas.intake import Task
from berth.schemas.ledger import Settings
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm, SpreadTerm
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job
from tests.support.constraint_worlds import having


def selector(operator: str, *values: str) -> LabelSelector:
    return LabelSelector((Expression("app", operator, values),))  # type: ignore[arg-type]  # also operators that do not belong


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            PodConstraints(affinity=(PodTerm("zone", selector("In"), ("a",)),)),
            "tasks[0].constraints.affinity[0].selector.expressions[0].values is '[]', expected at least one value with In",
        ),
        (
            PodConstraints(anti_affinity=(PodTerm("zone", having(app="a"), (), selector("Exists", "x")),)),
            "tasks[0].constraints.anti_affinity[0].namespace_selector.expressions[0].values is \"['x']\","
            " expected no value with Exists",
        ),
        (
            PodConstraints(spread=(SpreadTerm("zone", 1, selector("Gt", "1")),)),
            "tasks[0].constraints.spread[0].selector.expressions[0].operator is 'Gt',"
            " expected one of DoesNotExist, Exists, In, NotIn",
        ),
        (
            PodConstraints(spread=(SpreadTerm("zone", 1, having(app="a")), SpreadTerm("zone", 2, having(app="b")))),
            "tasks[0].constraints.spread is 'zone twice', expected each topology key once",
        ),
        (
            PodConstraints(ports=(HostPort(80, address="10.0.0.1"), HostPort(80))),
            "tasks[0].constraints.ports is '80/TCP twice', expected each host port once",
        ),
        (
            PodConstraints(resources=(("rdma/hca", 1), ("rdma/hca", 2))),
            "tasks[0].constraints.resources is 'rdma/hca twice', expected each resource once",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(wanted: PodConstraints, words: str) -> None:
    job = a_job("j", tasks=[Task("worker", 1, 1, constraints=wanted)])
    found = validate(job, Settings())
    assert isinstance(found, Refusal)
    assert sentence(found) == words


def test_ports_of_two_addresses_and_protocols_go_together() -> None:
    ports = (HostPort(80, address="10.0.0.1"), HostPort(80, address="10.0.0.2"), HostPort(80, "UDP"))
    job = a_job("j", tasks=[Task("worker", 1, 1, constraints=PodConstraints(ports=ports))])
    assert isinstance(validate(job, Settings()), ValidJob)
