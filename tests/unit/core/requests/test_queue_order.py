"""Order of waiting jobs: priority, then ranks that a running gang lacks, then age."""

import msgspec
import pytest

from berth.core.overview.queue_order import queue_key
from berth.core.requests.gangs import gang_of, queue_order
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.status import JobStatus
from tests.support.cells import a_job


def waiting(name: str, accepted_seq: int, **changes: object) -> tuple[JobSeen, JobRequest]:
    request = msgspec.structs.replace(a_job(name), origin="pods", **changes)
    seen = JobSeen("default", name, f"uid-{name}", "accepted", accepted_seq, accepted_seq, request=request)
    return seen, request


OLD = waiting("old", 5)
YOUNG = waiting("young", 9)
URGENT = waiting("urgent", 9, priority=1)
LOST = waiting("lost", 8, since_seq=3)
FRAGILE = waiting("fragile", 9, since_seq=4, is_fragile=True)
URGENT_FRAGILE = waiting("urgent-fragile", 9, since_seq=4, is_fragile=True, priority=1)
INVENTED = waiting("invented", 10, since_seq=1, is_fragile=True)
INVENTED = (INVENTED[0], msgspec.structs.replace(INVENTED[1], origin="berth"))


def test_waiting_jobs_are_in_the_order_of_priority_then_of_need_then_of_age() -> None:
    jobs = [INVENTED, YOUNG, OLD, FRAGILE, LOST, URGENT, URGENT_FRAGILE]
    ordered = sorted(jobs, key=lambda job: queue_order(*job))
    assert [seen.name for seen, _ in ordered] == [
        "urgent-fragile", "urgent", "fragile", "lost", "old", "young", "invented",
    ]  # fmt: skip


@pytest.mark.parametrize("job", [OLD, LOST, FRAGILE, INVENTED])
def test_the_dispatcher_has_the_order_that_is_shown(job: tuple[JobSeen, JobRequest]) -> None:
    assert gang_of(*job, attempt=1, settings=Settings()).order == queue_order(*job)


def test_lists_show_fragile_jobs_before_older_ones() -> None:
    old = JobStatus("default", "old", "u1", "waiting", 0, 0, accepted_seq=1)
    fragile = JobStatus("default", "fragile", "u2", "waiting", 0, 0, accepted_seq=2, is_fragile=True)
    urgent = JobStatus("default", "urgent", "u3", "waiting", 0, 0, accepted_seq=3, priority=1)
    assert sorted([old, fragile, urgent], key=queue_key) == [urgent, fragile, old]
