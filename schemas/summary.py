"""Job summaries: what the fabric controller reads of a job, as an event beside the ConfigMap."""

from typing import ClassVar

from berth.schemas.message import Message
from berth.schemas.units import UnixMs


class JobSummary(Message, frozen=True):
    """One chunk of a job's summary: the same record as the ConfigMap of that name.

    Source: docs/reference/kubernetes.md, "Fields of a job summary".
    """

    KIND: ClassVar[str] = "summary"

    namespace: str
    name: str
    """Name of the ConfigMap: ``job-summary-<job>``, or ``job-summary-<job>-<chunk>`` from chunk 1 on."""
    job: str
    job_uid: str
    chunk: int = 0
    total: int = 1
    data: dict[str, str] = {}
    """Data of the ConfigMap; empty once it was deleted."""
    deleted: bool = False
    at_ms: UnixMs = 0
