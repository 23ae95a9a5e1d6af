"""Anti-affinity that selects pods by a label that they lack."""

import pytest

from berth.schemas.constraints import Expression
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm
from berth.schemas.refusal import NodeReason
from tests.unit.core.constraints.test_constraints import a_cell, a_task, placed, reasons

LACKS_APP = LabelSelector((Expression("app", "DoesNotExist"),))
SHY = PodConstraints(anti_affinity=(PodTerm("zone", LACKS_APP, namespace_selector=LabelSelector()),))


@pytest.mark.parametrize("wanted", [PodConstraints(ports=(HostPort(80),)), PodConstraints(resources=()), None])
def test_it_repels_pods_without_the_label_and_no_others(wanted: PodConstraints | None) -> None:
    cell = a_cell({"a1": "a"})
    placed(cell, "shy", a_task(SHY, app="shy"))
    assert reasons(cell, "bare", a_task(wanted)) == {NodeReason.REPELLED: 1}
    assert placed(cell, "labelled", a_task(wanted, app="a")) == ["a1"]
