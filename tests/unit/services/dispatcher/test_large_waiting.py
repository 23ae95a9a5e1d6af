"""A namespace of large jobs that wait: their bytes are bounded, and what is refused is not kept."""

import pytest

from berth.core.requests.waiting_jobs import BYTES_A_JOB
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import BYTES, JobRequest, Task
from tests.support.cells import Cell, a_job

SENT = 6


def large(number: int) -> JobRequest:
    """A valid job of some 800 KB that fits on no node: 4,000 tasks that differ in their labels alone."""
    tasks = [Task(f"t{one}", 1, 8, labels={"text": f"{one}-" + "x" * 180}) for one in range(4_000)]
    return a_job(f"large-{number}", tasks=tasks)


@pytest.mark.timeout(120)
async def test_few_large_jobs_fill_a_namespace_by_their_bytes() -> None:
    most = BYTES.most // BYTES_A_JOB
    cell = await Cell(waiting_jobs_max=most).open()
    cell.server.payload_limit_bytes = 8 << 20
    size = len(encode(large(0)))
    assert BYTES.most // 3 < size <= BYTES.most // 2
    await cell.submit(*(large(number) for number in range(SENT)), a_job("small"), a_job("other", namespace="b"))
    await cell.turns(6)
    jobs = cell.dispatcher.state.jobs
    found: list[JobSeen] = [jobs["default", f"large-{number}"] for number in range(SENT)]
    assert [one.state for one in found] == ["accepted"] * 2 + ["rejected"] * (SENT - 2)
    assert [one.request is None for one in found] == [False] * 2 + [True] * (SENT - 2)
    assert sum(len(encode(one)) for one in jobs.values()) < BYTES.most + 20_000
    assert {one.refusal.code for one in found[2:] if one.refusal is not None} == {"too-many"}
    assert (jobs["default", "small"].state, jobs["b", "other"].state) == ("accepted", "accepted")
    await cell.close()
