"""Destinations of the demo's jobs: the cell itself, or a Kubernetes cluster."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from berth.cli.jobs.requests import stamped
from berth.formats.manifests.reader import parse_jobs
from berth.lab.cells.fleet import EXAMPLES
from berth.lab.commands.story import Story, Tale
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobRequest

NAMESPACE: Final = "default"


class Sight(msgspec.Struct, frozen=True):
    """State of the Kubernetes cluster at the end of the demo."""

    version: str
    """Version of the API server."""
    pods_bound: int
    """Bound pods."""
    pods_waiting: int
    summaries: int
    """ConfigMaps with the summary of a job."""
    podgroups: dict[str, int]
    """Remaining PodGroups by phase."""


class Stage(Protocol):
    """A destination of jobs; it reports to the story the events that the cell does not publish.

    Attributes:
        limit_s: Timeout of the whole demo.
        namespace: Namespace of the jobs.
    """

    limit_s: float
    namespace: str

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        """Send jobs."""

    async def send_again(self, jobs: Sequence[JobRequest]) -> None:
        """Send jobs whose names are those of jobs that have ended."""

    async def cancel(self, name: str) -> None:
        """Cancel a job."""

    async def sight(self) -> Sight | None:
        """State outside of the cell; None if there is none."""


def jobs_of(file: str) -> list[JobRequest]:
    """Jobs in a file of the demo."""
    return parse_jobs((EXAMPLES / file).read_text("utf-8"))


def job_name(tale: Tale) -> str:
    """Name of a request in the cell."""
    return tale.job or tale.name


class CellStage:
    """The cell itself: jobs are requests on its intake."""

    limit_s = 120.0
    namespace = NAMESPACE

    def __init__(self, bus: Bus, clock: Clock, story: Story) -> None:
        self._bus = bus
        self._clock = clock
        self._story = story

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        """Publish requests."""
        now_ms = self._clock.now_ms()
        for job in jobs:
            request = stamped(job, now_ms=now_ms)
            self._story.sent(request, at_ms=now_ms)
            subject = self._bus.subjects.intake_request(request.namespace, request.name)
            await self._bus.publish(subject, encode(request))

    async def send_again(self, jobs: Sequence[JobRequest]) -> None:
        """Publish requests: a name is free as soon as its job has ended."""
        await self.send(jobs)

    async def cancel(self, name: str) -> None:
        """Publish the cancellation."""
        wish = JobCancel(self.namespace, name, reason="the demo shows it", created_at_ms=self._clock.now_ms())
        await self._bus.publish(self._bus.subjects.intake_cancel(self.namespace, name), encode(wish))

    async def sight(self) -> Sight | None:
        """None: all state is in the cell."""
        return None
