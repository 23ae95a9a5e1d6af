"""Job summaries, which the fabric controller reads: the content of the ConfigMap as a message."""

from typing import ClassVar

from berth.schemas.message import Message
from berth.schemas.units import UnixMs


class JobSummary(Message, frozen=True):
    """One chunk of the summary of a job: the same data as the ConfigMap of that name.

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
