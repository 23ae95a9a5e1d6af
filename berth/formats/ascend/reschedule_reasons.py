"""ConfigMap ``job-reschedule-reason``: the newest restarts of jobs, with the pods that caused them.

Source: docs/reference/faults.md, "What is written after a fault".
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.formats.ascend.report_error import decoded
from berth.formats.whole_numbers import WHOLE_MAX, Int64

NAMESPACE: Final = "mindx-dl"
NAME: Final = "job-reschedule-reason"
KEY: Final = "recent-reschedule-records"
RECORDS_MAX: Final = 10
PODS_MAX: Final = 10
BYTES_MAX: Final = 950 * 1024
ROUNDS_MAX: Final = 10


class PodReason(msgspec.Struct, frozen=True):
    """A pod that caused a restart."""

    reason: str = msgspec.field(name="RescheduleReason", default="")
    pod: str = msgspec.field(name="PodName", default="")
    node: str = msgspec.field(name="NodeName", default="")
    rank: str = msgspec.field(name="NodeRankIndex", default="")


class Restart(msgspec.Struct, frozen=True):
    """A restart."""

    log_time: str = msgspec.field(name="LogFileFormatTime", default="")
    """``Immdd hh:mm:ss``."""
    at_s: Int64 = msgspec.field(name="RescheduleTimeStamp", default=0)
    """Seconds since 1970."""
    pods: list[PodReason] | None = msgspec.field(name="ReasonOfTask", default=None)


class JobRestarts(msgspec.Struct, frozen=True):
    """The restarts of a job."""

    job: str = msgspec.field(name="JobID", default="")
    total: Int64 = msgspec.field(name="TotalRescheduleTimes", default=0)
    """All restarts, also those that are no longer listed."""
    restarts: list[Restart] | None = msgspec.field(name="RescheduleRecords", default=None)
    """Newest first."""
    more: str | msgspec.UnsetType = msgspec.field(name="AdditionalInfo", default=msgspec.UNSET)


Restarts = dict[str, JobRestarts]
"""By job: its namespace, a slash, and the name of its PodGroup."""
_RESTARTS: Final = msgspec.json.Decoder(Restarts | None)


def restart_of(at_s: int, log_time: str, pods: Sequence[PodReason]) -> Restart:
    """A restart with the first :data:`PODS_MAX` of its pods."""
    return Restart(log_time, at_s, list(pods[:PODS_MAX]))


def with_restart(before: JobRestarts | None, key: str, restart: Restart) -> JobRestarts:
    """Restarts of a job after one more.

    Args:
        before: Its restarts so far; None without any.
        key: The job.
        restart: The newest.
    """
    known = before or JobRestarts()
    return JobRestarts(
        key, min(known.total + 1, WHOLE_MAX), [restart, *(known.restarts or ())][:RECORDS_MAX], known.more
    )


def fitted(restarts: Mapping[str, JobRestarts], *, bytes_max: int = BYTES_MAX) -> tuple[Restarts, str]:
    """Restarts that fit into the ConfigMap, and their text.

    While they do not fit, the oldest of each job is removed, never the newest. After :data:`ROUNDS_MAX` rounds the rest
    stays, however large.
    """
    found = dict(restarts)
    text = text_of(found)
    for _ in range(ROUNDS_MAX):
        if len(text.encode()) <= bytes_max:
            break
        found = {key: _without_oldest(job) for key, job in found.items()}
        text = text_of(found)
    return found, text


def text_of(restarts: Mapping[str, JobRestarts]) -> str:
    """Value of :data:`KEY`; empty without jobs."""
    return msgspec.json.encode(restarts, order="deterministic").decode() if restarts else ""


def read_restarts(text: str) -> Restarts:
    """Restarts in the value of :data:`KEY`, within the limits of records and pods.

    Raises:
        ReportError: It is not JSON, or has another form.
    """
    found = decoded(text, _RESTARTS, field=KEY) or {} if text.strip() else {}
    return {key: _bounded(job) for key, job in found.items()}


def _without_oldest(job: JobRestarts) -> JobRestarts:
    listed = job.restarts or []
    return msgspec.structs.replace(job, restarts=listed[:-1]) if len(listed) > 1 else job


def _bounded(job: JobRestarts) -> JobRestarts:
    listed = (job.restarts or [])[:RECORDS_MAX]
    return msgspec.structs.replace(
        job, restarts=[msgspec.structs.replace(one, pods=(one.pods or [])[:PODS_MAX]) for one in listed]
    )
