"""How many candidates a round needs of each shape."""

import msgspec

from berth.core.placement.round_demand import candidate_counts
from berth.core.requests.gangs import gang_of
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from tests.support.cells import a_job


def test_nodes_that_a_gang_leaves_out_are_passed_over() -> None:
    """The round of a projection cannot ask for more candidates later."""
    request = a_job("j", chips=8, replicas=3)
    job = JobSeen("default", "j", "uid-j", "accepted", 1, 1, request=request)
    gang = gang_of(job, request, attempt=2, settings=Settings())
    ((shape, _),) = gang.request_class
    assert candidate_counts([gang]) == {shape: 3}
    assert candidate_counts([msgspec.structs.replace(gang, avoided=("a", "b"))]) == {shape: 5}
