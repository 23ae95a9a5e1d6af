"""Accepted requests of placed jobs: what their pods ask for, read from the bus once for all tries of an attempt."""

from typing import NamedTuple

from berth.runtime.bus.port import Bus
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.subjects import StreamName
from berth.services.binder.cluster import Shapes
from berth.services.binder.node_cards import shapes_of_tasks
from berth.services.binder.work import Attempt, AttemptKey


class Asked(NamedTuple):
    """What a job asks for, as far as the binder needs it."""

    run_ms: int = 0
    """Declared run time; 0 when unknown."""
    shapes: Shapes = ()
    """What the pods of each task select and tolerate, with their number; empty while the request is not known."""


class AcceptedRequests:
    """Requests of attempts with a step that is due. The request of a placed job stays as it is.

    Args:
        bus: Has the verdicts on requests.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked: dict[AttemptKey, Asked] = {}

    def forget(self, key: AttemptKey) -> None:
        """No step of an attempt is due."""
        self._asked.pop(key, None)

    async def asked_of(self, attempt: Attempt) -> Asked:
        """What the job of an attempt asks for.

        Raises:
            TransientError: The bus did not answer.
        """
        key = (attempt.uid, attempt.attempt)
        if key not in self._asked:
            request = await self._request(attempt)
            if request is None:
                return Asked()
            self._asked[key] = Asked(request.run_ms, shapes_of_tasks(request))
        return self._asked[key]

    async def _request(self, attempt: Attempt) -> JobRequest | None:
        """The accepted request of a job; None when it is not known."""
        subject = self._bus.subjects.fact_job(attempt.namespace, attempt.name)
        for stream in (StreamName.LATEST, StreamName.FACTS):
            stored = await self._bus.last(stream, subject)
            if stored is None:
                continue
            try:
                job = decode(stored.data, JobSeen)
            except DecodeError:
                continue
            if job.uid == attempt.uid and job.request is not None:
                return job.request
        return None
