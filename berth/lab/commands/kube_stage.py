"""Jobs of the demo as objects of a Kubernetes cluster: created, deleted, created again; their PodGroups are watched.

Several forms are used, so that the demo shows all of them: jobs for A3 are AscendJobs, single pods for inference cards
are pods, jobs with many pods and those written as batch/v1 are Kubernetes Jobs, and the others are Volcano Jobs.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from berth.cli.output import CommandError
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Listed, Pod, PodGroup
from berth.formats.kubernetes.paths import sub_path
from berth.formats.kubernetes.workloads.membership import short_kind
from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.manifests.pod_template import SYSTEM_CLASSES
from berth.formats.manifests.writer import (
    priority_class,
    write_ascend_job,
    write_batch_job,
    write_pod,
    write_priority_class,
    write_volcano_job,
)
from berth.lab.commands.stage import Sight
from berth.lab.commands.story import Story
from berth.products.model import LABEL_TYPE, RESOURCE_310
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.schemas.intake import JobRequest

NAMESPACE: Final = "berth-demo"
PODGROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_SUMMARIES: Final = "job-summary-"
_MANY: Final = 32
"""Smallest number of pods of a job that is sent as a Kubernetes Job."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.5
_GONE_S: Final = 20.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of objects that a job can be.

    Attributes:
        short: Prefix of the names of requests.
        collection: Path of the objects of a namespace.
        write: Creates the object.
    """

    short: str
    collection: str
    write: Callable[[JobRequest], dict[str, Any]]


def _form(name: str, write: Callable[[JobRequest], dict[str, Any]]) -> Form:
    """Form of a kind of workloads."""
    kind = kinds().named[name]
    return Form(kind.gang_word, f"/apis/{kind.versions[0]}/namespaces/{{}}/{kind.plural}", write)


VOLCANO: Final = _form("VolcanoJob", write_volcano_job)
ASCEND: Final = _form("AscendJob", write_ascend_job)
BATCH: Final = _form("Job", write_batch_job)
POD: Final = Form("pod", "/api/v1/namespaces/{}/pods", write_pod)


def form_of(request: JobRequest) -> Form:
    """Form in which a request of the demo is sent."""
    pods = sum(task.replicas for task in request.tasks)
    by_origin = {"volcano-job": VOLCANO, "ascend-job": ASCEND, "batch-job": BATCH}
    if request.origin in by_origin:
        return by_origin[request.origin]
    if pods >= _MANY:
        return BATCH
    if "-a3-" in request.node_selector.get(LABEL_TYPE, ""):
        return ASCEND
    return POD if pods == 1 and request.resource.startswith(RESOURCE_310) else VOLCANO


class KubeStage:
    """A namespace of a Kubernetes cluster.

    Args:
        api: The cluster, as a user of it.
        clock: Source of time.
        story: Gets the events that do not reach the cell.
    """

    limit_s = 240.0
    namespace = NAMESPACE

    def __init__(self, api: Api, clock: Clock, story: Story) -> None:
        self._api = api
        self._clock = clock
        self._story = story
        self._classes: set[str] = set(SYSTEM_CLASSES)
        self._groups = _Groups(story)

    async def watch(self) -> None:
        """Watch the PodGroups until cancelled."""
        await self._api.reflect(PODGROUPS.format(self.namespace), PodGroup, self._groups).run()

    async def open(self) -> None:
        """Make the namespace."""
        await self._make("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        """Create the objects; the API server rejects one whose name is in use."""
        for job in jobs:
            request = replace(job, namespace=self.namespace)
            form = form_of(request)
            await self._need_class(request)
            now_ms = self._clock.now_ms()
            try:
                await self._make(form.collection.format(self.namespace), form.write(request))
            except RefusedError as error:
                self._story.refused(request, error.reason, at_ms=now_ms)
                continue
            self._story.sent(request, at_ms=now_ms, job=f"{form.short}.{request.name}")

    async def send_again(self, jobs: Sequence[JobRequest]) -> None:
        """Delete the objects with these names, and create the new ones once they are gone."""
        for job in jobs:
            await self._delete(sub_path(form_of(job).collection.format(self.namespace), job.name))
        await self.send(jobs)

    async def cancel(self, name: str) -> None:
        """Delete the object of a job. A request that was not made by then is cancelled once its PodGroup is gone."""
        tale = self._story.taken_back(name)
        if tale is None:
            return
        short = tale.job.partition(".")[0]
        form = next(form for form in (VOLCANO, ASCEND, BATCH, POD) if form.short == short)
        await self._api.delete(sub_path(form.collection.format(self.namespace), name), propagation="Background")
        if tale.job not in self._groups.jobs:
            self._story.never_made(tale.job)

    async def sight(self) -> Sight | None:
        """State of the cluster."""
        pods = (await self._api.get(POD.collection.format(self.namespace), Listed[Pod])).items or []
        groups = (await self._api.get(PODGROUPS.format(self.namespace), Listed[PodGroup])).items or []
        maps = await self._api.get(f"/api/v1/namespaces/{self.namespace}/configmaps", Listed[_Named])
        phases = Counter(group.status.phase for group in groups)
        return Sight(
            version=await self._api.version(),
            pods_bound=sum(bool(pod.spec.node_name) for pod in pods),
            pods_waiting=sum(not pod.spec.node_name for pod in pods),
            summaries=sum(one.metadata.name.startswith(_SUMMARIES) for one in maps.items or []),
            podgroups={phase: phases[phase] for phase in sorted(phases)},
        )

    async def _delete(self, path: str) -> None:
        """Delete an object, and wait until it is gone.

        Raises:
            CommandError: The object is still there after the time.
        """
        await self._api.delete(path, propagation="Background")
        end_s = self._clock.monotonic_s() + _GONE_S
        while not await self._is_gone(path):
            if self._clock.monotonic_s() > end_s:
                raise CommandError(f"{path} is still there {_GONE_S:g} s after it was deleted")
            await asyncio.sleep(_LOOK_S)

    async def _is_gone(self, path: str) -> bool:
        """Whether an object does not exist.

        Raises:
            RefusedError: The server rejects the request.
        """
        try:
            await self._api.get(path, _Named)
        except RefusedError as error:
            if error.is_absent:
                return True
            raise
        return False

    async def _need_class(self, request: JobRequest) -> None:
        """Create the priority class of a request, if it has one that does not exist."""
        name = priority_class(request)
        if name and name not in self._classes:
            await self._make(_CLASSES, write_priority_class(name, request.priority))
            self._classes.add(name)

    async def _make(self, collection: str, body: dict[str, Any]) -> None:
        """Create an object, also if the server is slow.

        Raises:
            RefusedError: It rejects the object.
            TransientError: It does not answer repeatedly.
        """
        is_doubtful = False
        for left in reversed(range(_TRIES)):
            try:
                await self._api.create(collection, body)
            except TransientError as error:
                if not left:
                    raise
                is_doubtful = is_doubtful or isinstance(error, AmbiguousError)
                await asyncio.sleep(max(error.retry_after_s, _PAUSE_S))
            except RefusedError as error:
                if error.is_conflict and is_doubtful:
                    return  # the attempt without an answer created it
                raise
            else:
                return


class _Named(Lean, frozen=True):
    """Any object."""

    metadata: Meta = Meta()


class _Groups:
    """PodGroups by the requests that will be made of their pods."""

    def __init__(self, story: Story) -> None:
        self.jobs: dict[str, str] = {}
        """Name of the PodGroup, by the name of the request."""
        self._story = story

    def replace(self, objects: list[PodGroup]) -> None:
        self.jobs.clear()
        for group in objects:
            self._take(group)

    def change(self, changes: list[tuple[Change, PodGroup]]) -> None:
        for kind, group in changes:
            if kind == "DELETED":
                self._drop(group)
            else:
                self._take(group)

    def _take(self, group: PodGroup) -> None:
        owner = group.metadata.controller
        if owner is None:
            return
        job = f"{short_kind(owner)}.{owner.name}"
        self.jobs[job] = group.metadata.name
        messages = [item.message for item in group.status.conditions or () if item.status == "True" and item.message]
        if group.status.phase == "Pending" and messages:
            self._story.held(job, messages[-1])

    def _drop(self, group: PodGroup) -> None:
        for job, name in list(self.jobs.items()):
            if name == group.metadata.name:
                del self.jobs[job]
                self._story.never_made(job)
