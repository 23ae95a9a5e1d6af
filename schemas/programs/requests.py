"""Requests of programs: one JSON object each, sent to ``berth.<cell>.api.<verb>``."""

from typing import Annotated, Final

from msgspec import Meta

from berth.schemas.intake import Name
from berth.schemas.programs.job_file import JobFile
from berth.schemas.programs.shape import Request, Text

NODES_MAX: Final = 1_000
"""Most nodes in one reply."""


class SubmitRequest(Request, frozen=True, kw_only=True):
    """Submit a job. Its ``metadata.uid`` is the idempotency key: a repeated request never submits twice."""

    job: JobFile
    """A job file of Berth as JSON; also a Volcano Job, an AscendJob or a Kubernetes Job with its own fields."""


class CancelRequest(Request, frozen=True, kw_only=True):
    """Cancel a job, whether it waits or runs."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""
    reason: Text = ""
    """It is stored with the job."""


class StatusRequest(Request, frozen=True, kw_only=True):
    """Ask for the status of a job."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""


class ExplainRequest(Request, frozen=True, kw_only=True):
    """Ask why a job is where it is, or why it waits and what would help."""

    name: Name
    namespace: Name = "default"
    uid: Text = ""
    """Only the job with this uid; empty: the job that has the name."""


class NodesRequest(Request, frozen=True, kw_only=True):
    """Ask for nodes and their chips, by name."""

    names: list[Text] = []
    """Only these nodes; empty: all."""
    after: Text = ""
    """Only nodes whose name comes after this one: ``next`` of the reply before."""
    limit: Annotated[int, Meta(ge=1, le=NODES_MAX)] = NODES_MAX
    """Most nodes in the reply."""


class RightsRequest(Request, frozen=True, kw_only=True):
    """Ask what the caller may do."""
