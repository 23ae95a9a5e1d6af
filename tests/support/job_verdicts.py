"""What a cell in memory reports of a job: status, placement, refusal."""

from berth.schemas.placement import Placement
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from tests.support.cells import Cell


async def told(cell: Cell, name: str) -> JobStatus:
    """Status of a job."""
    status = await cell.status(name)
    assert status is not None
    return status


async def placement(cell: Cell, name: str) -> Placement:
    """Where a placed job runs."""
    found = (await told(cell, name)).placement
    assert found is not None, (await told(cell, name)).sentence
    return found


async def refusal(cell: Cell, name: str) -> Refusal:
    """Why a job is not placed."""
    found = (await told(cell, name)).refusal
    assert found is not None
    return found
