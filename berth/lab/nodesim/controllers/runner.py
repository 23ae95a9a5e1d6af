"""Controllers of jobs on an API server: objects in, PodGroups and pods out.

A controller manages the jobs of given schedulers, but for those whose PodGroup or pods another controller had made when
it saw them first. It sees, and so deletes, only children that nodesim has made, or whose controller is such a job.

The actions for a job are computed from the current objects after each change. So a write that was done twice, or in
vain, does no harm.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.controllers.ascend_operator import AscendRules
from berth.lab.nodesim.controllers.gang_children import (
    GROUP_VERSION,
    GROUPS,
    Action,
    AnnotatePod,
    Children,
    DeleteGroup,
    DeletePods,
    MakeGroup,
    MakePods,
    SetGroupSpec,
    SetJobStatus,
)
from berth.lab.nodesim.controllers.podgroups import PodGroupController
from berth.lab.nodesim.controllers.retry_counters import RetryCounters
from berth.lab.nodesim.controllers.volcano import VolcanoRules
from berth.lab.nodesim.kube_writes import KubeWrites, make_object
from berth.lab.nodesim.ownership import is_made
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.runtime.logs import Logger
from berth.schemas.units import UnixMs

_FORBIDDEN: Final = 403
_PODS_AT_ONCE: Final = 16


class Job(Protocol):
    """An object for which a controller creates pods."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""


_Key: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
J = TypeVar("J", bound=Job)
T = TypeVar("T")


class ControllerRules(Protocol[J]):
    """Rules of a controller."""

    @property
    def group_version(self) -> str:
        """Group and version of its jobs."""

    @property
    def plural(self) -> str:
        """Their plural."""

    @property
    def kind(self) -> type[J]:
        """Their struct."""

    @property
    def kind_name(self) -> str:
        """Their kind, as in owner references."""

    @property
    def pod_label(self) -> str:
        """Label of their pods; its value is the job's name."""

    def group_name(self, job: J) -> str:
        """Name of a job's PodGroup."""

    def schedulers(self, job: J) -> frozenset[str]:
        """Schedulers of a job's pods."""

    def reconcile(self, job: J | None, children: Children, now_ms: UnixMs) -> list[Action]:
        """Actions for a job; without a job all its children are deleted."""


class Working(Protocol):
    """A controller."""

    async def run(self) -> None:
        """Run until cancelled."""


async def controllers_of(
    api: Api, clock: Clock, config: NodesimConfig, writes: KubeWrites, log: Logger
) -> list[Working]:
    """Configured controllers, without those whose kinds the server does not serve."""
    found: list[Working] = []
    if not config.agents.controllers:
        return found
    if not await api.serves(GROUP_VERSION, GROUPS):
        log.warning("controllers disabled: the server does not serve the kind", kind=f"{GROUPS}.{GROUP_VERSION}")
        return found
    for name in dict.fromkeys(config.agents.controllers):
        rng = Random(f"{config.agents.seed} {name}")  # noqa: S311 - a simulation, repeatable
        pause_s = partial(rng.uniform, 0.0, config.agents.controllers_s)
        if name == "podgroup":
            found.append(PodGroupController(api, config.agents.scheduler_names, writes, pause_s, log))
            continue
        if name == "volcano":
            found += await _gangs(api, clock, VolcanoRules(), config.agents.scheduler_names, writes, pause_s, log)
            continue
        counters = RetryCounters(api) if config.agents.reads_retries else None
        rules = AscendRules(counters.times if counters is not None else None)
        found += await _gangs(api, clock, rules, config.agents.scheduler_names, writes, pause_s, log)
        found += [counters] if counters is not None else []
    return found


async def _gangs(
    api: Api,
    clock: Clock,
    rules: ControllerRules[J],
    schedulers: Sequence[str],
    writes: KubeWrites,
    pause_s: Callable[[], float],
    log: Logger,
) -> list[Working]:
    """Controller with the given rules, unless the server does not serve the kind."""
    if await api.serves(rules.group_version, rules.plural):
        return [GangController(api, clock, rules, schedulers, writes, pause_s, log)]
    kind = f"{rules.plural}.{rules.group_version}"
    log.warning("controller disabled: the server does not serve the kind", kind=kind)
    return []


class _Store(Generic[T]):
    """Objects of a kind from a reflection; calls ``touch`` for each changed object."""

    def __init__(self, meta_of: Callable[[T], Meta], touch: Callable[[T], None]) -> None:
        self.items: dict[tuple[str, str], T] = {}
        self._meta_of = meta_of
        self._touch = touch

    def replace(self, objects: list[T]) -> None:
        old, self.items = self.items, {self._key(item): item for item in objects}
        for key, item in old.items():
            if key not in self.items:
                self._touch(item)
        for item in objects:
            self._touch(item)

    def change(self, changes: list[tuple[Change, T]]) -> None:
        for kind, item in changes:
            if kind == "DELETED":
                item = self.items.pop(self._key(item), item)  # noqa: PLW2901 - the last full state names the owner
            else:
                self.items[self._key(item)] = item
            self._touch(item)

    def _key(self, item: T) -> tuple[str, str]:
        meta = self._meta_of(item)
        return (meta.namespace, meta.name)


class GangController(Generic[J]):
    """Controller of jobs of one kind.

    Args:
        api: The API server.
        clock: Source of time.
        rules: Its rules.
        schedulers: Schedulers whose jobs it manages.
        writes: Queue of its writes.
        pause_s: Draws how long it takes from a change to its writes.
        log: Logger of the service.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        rules: ControllerRules[J],
        schedulers: Sequence[str],
        writes: KubeWrites,
        pause_s: Callable[[], float],
        log: Logger,
    ) -> None:
        self._api = api
        self._clock = clock
        self._rules = rules
        self._schedulers = frozenset(schedulers)
        self._writes = writes
        self._pause_s = pause_s
        self._jobs: _Store[J] = _Store(lambda job: job.metadata, self._touch_job)
        self._groups: _Store[PodGroup] = _Store(lambda group: group.metadata, self._touch_group)
        self._pods: _Store[Pod] = _Store(lambda pod: pod.metadata, self._touch_pod)
        self._pods_of: dict[_Key, dict[str, None]] = {}
        self._group_of: dict[_Key, dict[str, None]] = {}
        self._manages: dict[_Key, dict[str, bool]] = {}
        """Whether it manages a job, by uid: those of the name of which children may be left."""
        self._is_synced = False
        self._log = log

    async def run(self) -> None:
        """Run until cancelled."""
        jobs = f"/apis/{self._rules.group_version}/{self._rules.plural}"
        reflections = [
            self._api.reflect(jobs, self._rules.kind, self._jobs),
            self._api.reflect(f"/apis/{GROUP_VERSION}/{GROUPS}", PodGroup, self._groups),
            self._api.reflect("/api/v1/pods", Pod, self._pods, params={"labelSelector": self._rules.pod_label}),
        ]
        async with asyncio.TaskGroup() as group:
            for reflection in reflections:
                group.create_task(reflection.run())
            for reflection in reflections:
                await reflection.synced.wait()
            self._is_synced = True
            for key in dict.fromkeys([*self._jobs.items, *self._pods_of, *self._group_of]):
                self._touch(key)

    def _touch_job(self, job: J) -> None:
        self._touch((job.metadata.namespace, job.metadata.name))

    def _touch_group(self, group: PodGroup) -> None:
        self._touch_child(group.metadata, self._group_of)

    def _touch_pod(self, pod: Pod) -> None:
        self._touch_child(pod.metadata, self._pods_of)
        self._touch((pod.metadata.namespace, pod.metadata.label(self._rules.pod_label)))  # it may hold a name

    def _touch_child(self, meta: Meta, names_of: dict[_Key, dict[str, None]]) -> None:
        owner = meta.controller
        if owner is not None and (owner.api_version, owner.kind) == (self._rules.group_version, self._rules.kind_name):
            key = (meta.namespace, owner.name)
            names_of.setdefault(key, {})[meta.name] = None
            self._touch(key)

    def _touch(self, key: _Key) -> None:
        if self._is_synced:
            name = f"{self._rules.plural} {key[0]}/{key[1]}"
            self._writes.put_later(name, partial(self._work, key), self._pause_s())

    async def _work(self, key: _Key) -> None:
        """Perform the actions for a job.

        Raises:
            TransientError: The server did not answer; the remaining actions are computed again.
            RefusedError: The server forbids some of them; it may not know the roles yet.
        """
        forbidden: RefusedError | None = None
        job = self._jobs.items.get(key)
        if job is not None and not self._is_managed(key, job):
            return
        children = self._children(key, job)
        for action in self._rules.reconcile(job, children, self._clock.now_ms()):
            try:
                await self._do(action, key)
            except RefusedError as error:
                if error.status == _FORBIDDEN:
                    forbidden = error
                elif not (error.is_conflict or error.is_absent):
                    self._log.error("write refused", object="/".join(key), status=error.status, reason=str(error))
        if forbidden is not None:
            raise forbidden

    def _is_managed(self, key: _Key, job: J) -> bool:
        uid = job.metadata.uid
        known = self._manages.setdefault(key, {})
        if uid not in known:
            metas = [pod.metadata for pod in self._named_pods(key).values()]
            metas += [group.metadata for group in self._named_groups(key).values()]
            is_others = any(_uid_of_controller(meta) == uid and not is_made(meta) for meta in metas)
            known[uid] = not is_others and not self._schedulers.isdisjoint(self._rules.schedulers(job))
            if is_others:
                self._log.warning("job left alone, another controller has made its children", object="/".join(key))
        return known[uid]

    def _children(self, key: _Key, job: J | None) -> Children:
        pods, groups = self._named_pods(key), self._named_groups(key)
        self._pods_of[key] = dict.fromkeys(pods)
        self._group_of[key] = dict.fromkeys(groups)
        pods = {name: pod for name, pod in pods.items() if self._is_own(key, pod.metadata)}
        groups = {name: group for name, group in groups.items() if self._is_own(key, group.metadata)}
        if job is None and not pods and not groups:
            self._pods_of.pop(key)
            self._group_of.pop(key)
            self._manages.pop(key, None)
        own = groups.get(self._rules.group_name(job)) if job is not None else next(iter(groups.values()), None)
        return Children(own, pods)

    def _is_own(self, key: _Key, child: Meta) -> bool:
        return is_made(child) or self._manages.get(key, {}).get(_uid_of_controller(child), False)

    def _named_pods(self, key: _Key) -> dict[str, Pod]:
        return {name: pod for name in self._pods_of.get(key, ()) if (pod := self._pods.items.get((key[0], name)))}

    def _named_groups(self, key: _Key) -> dict[str, PodGroup]:
        found = self._groups.items
        return {name: group for name in self._group_of.get(key, ()) if (group := found.get((key[0], name)))}

    async def _do(self, action: Action, key: _Key) -> None:
        """Perform one action.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        namespace = key[0]
        groups = api_path(GROUP_VERSION, "namespaces", namespace, GROUPS)
        match action:
            case MakeGroup(body):
                await make_object(self._api, groups, body)
            case DeleteGroup(group):
                await self._api.delete(sub_path(groups, group.metadata.name), uid=group.metadata.uid)
            case SetGroupSpec(group, spec):
                body = {"metadata": {"uid": group.metadata.uid}, "spec": spec}
                await self._api.patch(sub_path(groups, group.metadata.name), body)
            case MakePods(bodies):
                await self._each([partial(self._make_pod, namespace, body) for body in bodies])
            case DeletePods(pods):
                await self._each([partial(self._delete_pod, pod) for pod in pods])
            case AnnotatePod(pod, annotations):
                path = api_path("v1", "namespaces", namespace, "pods", pod.metadata.name)
                await self._api.patch(path, {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}})
            case SetJobStatus(uid, status):
                jobs = api_path(self._rules.group_version, "namespaces", namespace, self._rules.plural)
                body = {"metadata": {"uid": uid}, "status": status}
                await self._api.patch(sub_path(jobs, key[1], "status"), body)
            case _:
                assert_never(action)

    async def _each(self, calls: list[Callable[[], Any]]) -> None:
        """Perform several calls, some at the same time.

        Raises:
            RefusedError: The server refuses one of them; the others are performed all the same.
            TransientError: The server did not answer one of them.
        """
        waiting = iter(calls)
        failures: list[Exception] = []

        async def work() -> None:
            for one in waiting:
                try:
                    await one()
                except (RefusedError, TransientError) as error:
                    failures.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_PODS_AT_ONCE, len(calls))):
                group.create_task(work())
        for failure in sorted(failures, key=lambda error: isinstance(error, RefusedError)):
            raise failure

    async def _make_pod(self, namespace: str, body: dict[str, Any]) -> None:
        await make_object(self._api, api_path("v1", "namespaces", namespace, "pods"), body)

    async def _delete_pod(self, pod: Pod) -> None:
        meta = pod.metadata
        await self._api.delete(api_path("v1", "namespaces", meta.namespace, "pods", meta.name), uid=meta.uid)


def _uid_of_controller(meta: Meta) -> str:
    owner = meta.controller
    return "" if owner is None else owner.uid
