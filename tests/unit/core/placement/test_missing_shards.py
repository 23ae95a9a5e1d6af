"""Scoring without the nodes of shards that did not answer."""

import msgspec
import numpy as np
import pytest

from berth.core.cluster.node_classes import ClassKey
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell


class BrokenClasses(Scorer):
    """Fails on the class of nodes whose label says so."""

    def _reason_of(self, shape: Shape, key: ClassKey) -> NodeReason:
        if ("broken", "yes") in key.labels:
            raise IndexError("an index is out of bounds")
        return super()._reason_of(shape, key)


def test_a_class_of_which_no_node_answered_is_no_error_of_the_others() -> None:
    broken = a_node("b")
    broken = msgspec.structs.replace(broken, labels={**broken.labels, "broken": "yes"})
    state = CoreCell([a_node("a"), broken]).state
    request = a_job("job", chips=4)
    gang = gang_of(
        JobSeen("default", "job", "u", "accepted", 1, 1, request=request), request, attempt=1, settings=Settings()
    )
    ((shape, _),) = gang.request_class
    scorer = BrokenClasses(state.table, state.shares, state.fold.settings)
    without = np.array([name == "b" for name in state.table.names])
    reasons, _ = scorer.evaluate(shape, without)
    assert reasons[state.table.row_of["a"]] == NodeReason.FITS
    with pytest.raises(IndexError):
        scorer.evaluate(shape)
