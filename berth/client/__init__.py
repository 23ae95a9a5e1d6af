"""Client of the service for programs; ``docs/programs.md`` is the guide.

:mod:`berth.client.sync` is the same without asyncio.
"""

from berth.client.client import Client
from berth.client.errors import (
    ClientError,
    ConnectionLostError,
    EventsLostError,
    RequestError,
    UnavailableError,
    WaitTimeoutError,
)
from berth.client.job_events import StoredEvent
from berth.runtime.bus.access import Access
from berth.schemas.programs.job_file import JobFile, JobMetadata, JobSpec, JobTask, SoftShare

__all__ = [
    "Access",
    "Client",
    "ClientError",
    "ConnectionLostError",
    "EventsLostError",
    "JobFile",
    "JobMetadata",
    "JobSpec",
    "JobTask",
    "RequestError",
    "SoftShare",
    "StoredEvent",
    "UnavailableError",
    "WaitTimeoutError",
]
