"""Summaries on the API server and on the bus: existing ones, and their reconciliation."""

import hashlib
from collections.abc import Container, Mapping
from typing import Final

import msgspec

from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.status import JobSummary
from berth.schemas.subjects import StreamName
from berth.services.summary.job_summaries import Place
from berth.services.summary.record import Chunk
from berth.services.summary.views import JobName, is_summary

_FORBIDDEN: Final = 403
_DIGEST_BYTES: Final = 16


class ExistingMap(msgspec.Struct, frozen=True):
    """An existing ConfigMap."""

    job_uid: str
    digest: bytes


class Store:
    """Existing ConfigMaps and published events.

    Args:
        api: The API server.
        bus: The bus, where events are published.
        clock: Source of time.
        log: Logger of the service.
    """

    def __init__(self, api: Api, bus: Bus, clock: Clock, log: Logger) -> None:
        self._log = log
        self._api = api
        self._bus = bus
        self._clock = clock
        self.existing: dict[Place, ExistingMap] = {}
        self.found: list[ConfigMap] = []
        """First list, until it is restored."""
        self.drifted: dict[str, None] = {}
        """Jobs (uid) of which others changed a ConfigMap."""
        self._published: dict[str, bytes] = {}
        """Digest of the last event of each subject; of one that was deleted there is none."""
        self._undeleted: dict[str, JobSummary] = {}
        """Deletions of the summaries that an earlier run published, by subject and without the data."""

    async def load_events(self) -> None:
        """Read the events that are published already."""
        for stored in await self._bus.read(StreamName.SUMMARY):
            try:
                event = decode(stored.data, JobSummary)
            except DecodeError as error:
                self._log.warning("summary event unreadable", subject=stored.subject, reason=error.reason)
                continue
            if not event.deleted:
                self._published[stored.subject] = _digest({}, event.data)
                self._undeleted[stored.subject] = msgspec.structs.replace(event, data={}, deleted=True)

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take all summaries."""
        self.found = objects
        before, self.existing = self.existing, {}
        for item in objects:
            self._take(item)
        for place in before.keys() - self.existing.keys():
            self.drifted[before[place].job_uid] = None

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take writes and deletions of summaries, by Berth or by others."""
        for what, item in changes:
            place = (item.metadata.namespace, item.metadata.name)
            before = self.existing.get(place)
            if what == "DELETED":
                self.existing.pop(place, None)
            else:
                self._take(item)
            if before is not None and before != self.existing.get(place):
                self.drifted[before.job_uid] = None

    def _take(self, item: ConfigMap) -> None:
        place = (item.metadata.namespace, item.metadata.name)
        if not is_summary(item):
            self.existing.pop(place, None)  # it is no longer a summary
            return
        data = item.data or {}
        self.existing[place] = ExistingMap(data["job_id"], _digest(item.metadata.labels or {}, data))

    async def reconcile(self, job: JobName, wanted: list[Chunk]) -> int:
        """Reconcile the ConfigMaps of a job; returns how many were written or deleted.

        The first chunk is written last: a reader that waits for it finds the others. Surplus chunks are deleted at the
        end.

        Raises:
            TransientError: The server or the bus did not answer; completed writes stay.
            RefusedError: The server refuses a write.
        """
        count = 0
        for index in reversed(range(len(wanted))):
            count += await self._write(wanted[index])
        keep = {(chunk.namespace, chunk.name) for chunk in wanted}
        surplus = [place for place, item in self.existing.items() if item.job_uid == job.uid and place not in keep]
        for namespace, name in sorted(surplus):
            await self._api.delete(api_path("v1", "namespaces", namespace, "configmaps", name))
            self.existing.pop((namespace, name), None)
            count += 1
        await self._publish_changes(job, wanted)
        return count

    async def publish_gone(self, known: Container[str]) -> None:
        """Publish the deletion of summaries that an earlier run did not publish.

        Args:
            known: The known jobs (uid).

        Raises:
            TransientError: The bus did not answer.
        """
        for subject, event in sorted(self._undeleted.items()):
            if event.job_uid not in known:
                await self._publish(subject, msgspec.structs.replace(event, at_ms=self._clock.now_ms()))
            del self._undeleted[subject]

    async def _write(self, chunk: Chunk) -> int:
        place = (chunk.namespace, chunk.name)
        digest = _digest(chunk.labels, chunk.data)
        before = self.existing.get(place)
        if before is not None and before.digest == digest:
            return 0
        folder = api_path("v1", "namespaces", chunk.namespace, "configmaps")
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": chunk.namespace, "name": chunk.name, "labels": chunk.labels},
            "data": chunk.data,
        }
        try:
            if before is None:
                await self._api.create(folder, body)
            else:
                await self._api.update(sub_path(folder, chunk.name), body)
        except RefusedError as error:
            if before is None and error.cause == "AlreadyExists":
                await self._api.update(sub_path(folder, chunk.name), body)
            elif before is not None and error.is_absent:
                await self._api.create(folder, body)
            elif error.status == _FORBIDDEN and "being terminated" in str(error):
                return 0  # the namespace is being deleted with its content
            else:
                raise
        self.existing[place] = ExistingMap(chunk.data["job_id"], digest)
        return 1

    async def _publish_changes(self, job: JobName, wanted: list[Chunk]) -> None:
        """Publish what differs from the last events.

        Raises:
            TransientError: The bus did not answer.
        """
        subjects = self._bus.subjects
        for index, chunk in enumerate(wanted):
            event = JobSummary(
                namespace=job.namespace,
                name=chunk.name,
                job=job.name,
                job_uid=job.uid,
                chunk=index,
                total=len(wanted),
                data=chunk.data,
                at_ms=self._clock.now_ms(),
            )
            await self._publish(subjects.summary(job.namespace, job.uid, index), event)
        end = len(wanted)
        while subjects.summary(job.namespace, job.uid, end) in self._published:
            end += 1
        # From the last on: if one fails, those before it are found again.
        for index in reversed(range(len(wanted), end)):
            event = JobSummary(
                namespace=job.namespace,
                name="",
                job=job.name,
                job_uid=job.uid,
                chunk=index,
                total=len(wanted),
                deleted=True,
                at_ms=self._clock.now_ms(),
            )
            await self._publish(subjects.summary(job.namespace, job.uid, index), event)

    async def _publish(self, subject: str, event: JobSummary) -> None:
        digest = _digest({}, event.data)
        if self._published.get(subject) == digest and not event.deleted:
            return
        try:
            await self._bus.publish(subject, encode(event))
        except TransientError:
            self._published[subject] = b""  # it may be stored
            raise
        self._published[subject] = digest
        if event.deleted:
            del self._published[subject]


def _digest(labels: Mapping[str, str], data: Mapping[str, str]) -> bytes:
    """Digest of a ConfigMap's labels and data; equal digests mean equal content."""
    text = msgspec.json.encode([sorted(labels.items()), sorted(data.items())])
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
