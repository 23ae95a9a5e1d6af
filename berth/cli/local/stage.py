"""Destinations of the demo's jobs: the cell itself, or a Kubernetes cluster."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from berth.cli.jobs.submit import stamped
from berth.cli.local.fleet import EXAMPLES
from berth.cli.local.story import Story, Tale
from berth.formats.manifests.reader import parse_jobs
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobRequest

NAMESPACE: Final = "default"


class Sight(msgspec.Struct, frozen=True):
    """What a Kubernetes cluster shows when the demo is over."""

    version: str
    """Version of the API server."""
    pods_bound: int
    """Pods that have a node."""
    pods_waiting: int
    summaries: int
    """ConfigMaps with the summary of a job."""
    podgroups: dict[str, int]
    """PodGroups that are left, by phase."""


class Stage(Protocol):
    """A place to which jobs can be sent; what becomes of them is told to the story, as far as the cell does not tell.

    Attributes:
        limit_s: How long the whole play may take.
        namespace: Namespace of the jobs.
    """

    limit_s: float
    namespace: str

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        """Send jobs."""

    async def send_again(self, jobs: Sequence[JobRequest]) -> None:
        """Send jobs whose names are those of jobs that have ended."""

    async def cancel(self, name: str) -> None:
        """Take a job back."""

    async def sight(self) -> Sight | None:
        """What there is to be seen besides the cell; None where nothing is."""


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
        """Publish the wish."""
        wish = JobCancel(self.namespace, name, reason="the demo shows it", created_at_ms=self._clock.now_ms())
        await self._bus.publish(self._bus.subjects.intake_cancel(self.namespace, name), encode(wish))

    async def sight(self) -> Sight | None:
        """Nothing: all that is to be seen is in the cell."""
        return None
