"""Volcano's controller of PodGroups for pods without a job controller: Deployments, StatefulSets, Jobs, bare pods.

A pod is there before its PodGroup, and before it is told the name. A ReplicaSet without replicas loses its PodGroup,
maybe before its last pod goes, and gets another one of the same name with its next pod. While a PodGroup is admitted,
the controller writes its annotations anew with each new pod, so those of others are gone.

Source: docs/reference/kubernetes.md, "Volcano PodGroups".
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.gang_keys import QUEUE_NAME
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.lab.nodesim.controllers.gang_children import (
    GROUP_VERSION,
    GROUPS,
    group_body,
    is_live,
    min_resources,
    owner_of,
)
from berth.lab.nodesim.kube_writes import KubeWrites, OwnObjects
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.runtime.logs import Logger

MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
_PLURALS: Final = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "Job": "jobs", "DaemonSet": "daemonsets"}


class _Owner(Lean, frozen=True):
    metadata: Meta = Meta()


class _ReplicaSetSpec(Lean, frozen=True):
    replicas: int = 1


class _ReplicaSet(Lean, frozen=True):
    metadata: Meta = Meta()
    spec: _ReplicaSetSpec = _ReplicaSetSpec()


class PodGroupController:
    """The controller.

    Args:
        api: The API server.
        schedulers: Schedulers whose pods get a PodGroup.
        writes: Queue of its writes.
        pause_s: Draws how long it takes from a change to its writes.
        log: Logger of the service.
    """

    def __init__(
        self, api: Api, schedulers: Sequence[str], writes: KubeWrites, pause_s: Callable[[], float], log: Logger
    ) -> None:
        self._api = api
        self._schedulers = schedulers
        self._writes = writes
        self._pause_s = pause_s
        self._objects = OwnObjects(api, log)
        self._unnamed: dict[str, Pod] = {}
        """Pods that are not told of a PodGroup yet, by uid; they may have a node already."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in dict.fromkeys(self._schedulers):
                params = {"fieldSelector": f"spec.schedulerName={name}"}
                group.create_task(self._api.reflect("/api/v1/pods", Pod, self, params=params).run())
            sets = _Scaled(self._delete_if_scaled_down)
            group.create_task(self._api.reflect("/apis/apps/v1/replicasets", _ReplicaSet, sets).run())

    def replace(self, objects: list[Pod]) -> None:
        """Take all pods of a scheduler."""
        for pod in objects:
            self._see(pod)

    def change(self, changes: list[tuple[Change, Pod]]) -> None:
        """Take changes of pods."""
        for kind, pod in changes:
            if kind == "DELETED":
                self._unnamed.pop(pod.metadata.uid, None)
            else:
                self._see(pod)

    def _see(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not is_live(pod) or pod.metadata.annotation(GROUP_NAME):
            self._unnamed.pop(uid, None)
            return
        self._unnamed[uid] = pod
        self._writes.put_later(f"podgroup {uid}", partial(self._group, uid), self._pause_s())

    def _delete_if_scaled_down(self, found: _ReplicaSet) -> None:
        """Delete the PodGroup of a ReplicaSet without replicas, if this controller has made it."""
        meta = found.metadata
        if not found.spec.replicas:
            collection = api_path(GROUP_VERSION, "namespaces", meta.namespace, GROUPS)
            write = partial(self._objects.delete, collection, _group_name(meta.uid))
            self._writes.put_later(f"podgroup of {meta.uid}", write, self._pause_s())

    async def _group(self, pod_uid: str) -> None:
        """Create the PodGroup of a pod unless it exists, and write its name on the pod.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        pod = self._unnamed.get(pod_uid)
        if pod is None:
            return
        meta = pod.metadata
        owner = meta.controller
        uid = meta.uid if owner is None else owner.uid
        reference = owner_of(meta, api_version="v1", kind="Pod")
        if owner is not None:
            named = Meta(name=owner.name, uid=owner.uid)
            reference = owner_of(named, api_version=owner.api_version, kind=owner.kind)
        least = await self._min_member(meta)
        template = {"spec": _spec(pod)}
        spec = {
            "minMember": least,
            "queue": meta.annotation(QUEUE_NAME, "default"),
            "priorityClassName": pod.spec.priority_class_name,
            "minResources": min_resources([(template, least)], least),
        }
        name = _group_name(uid)
        body = group_body(name, meta.namespace, reference, spec)
        collection = api_path(GROUP_VERSION, "namespaces", meta.namespace, GROUPS)
        if not await self._objects.make(collection, body):
            await self._overwrite(sub_path(collection, name))
        patch = {"metadata": {"uid": meta.uid, "annotations": {GROUP_NAME: name}}}
        await self._api.patch(api_path("v1", "namespaces", meta.namespace, "pods", meta.name), patch)

    async def _overwrite(self, path: str) -> None:
        """Write the annotations of an admitted PodGroup as it was made, without any.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        found = await self._api.get(path, PodGroup)
        if found.status.phase == "Inqueue":
            gone = dict.fromkeys(found.metadata.annotations or {})
            await self._objects.patch(path, {"metadata": {"annotations": gone}})

    async def _min_member(self, meta: Meta) -> int:
        """Pods that must start together, from the owner's annotation; 1 by default.

        Raises:
            TransientError: The server did not answer.
        """
        owner = meta.controller
        if owner is None or owner.kind not in _PLURALS or "/" not in owner.api_version:
            return 1
        path = api_path(owner.api_version, "namespaces", meta.namespace, _PLURALS[owner.kind], owner.name)
        try:
            found = await self._api.get(path, _Owner)
        except RefusedError:
            return 1
        text = found.metadata.annotation(MIN_MEMBER)
        return int(text) if text.isascii() and text.isdigit() and int(text) else 1


class _Scaled:
    """Hands each ReplicaSet on."""

    def __init__(self, see: Callable[[_ReplicaSet], None]) -> None:
        self._see = see

    def replace(self, objects: list[_ReplicaSet]) -> None:
        for found in objects:
            self._see(found)

    def change(self, changes: list[tuple[Change, _ReplicaSet]]) -> None:
        for kind, found in changes:
            if kind != "DELETED":
                self._see(found)


def _group_name(uid: str) -> str:
    """Name of the PodGroup of an owner, or of a pod without one."""
    return f"podgroup-{uid}"


def _spec(pod: Pod) -> dict[str, Any]:
    """Resources of a pod's containers, in the form of a template."""
    return {
        "containers": [
            {
                "resources": {
                    "limits": dict(container.resources.limits or {}),
                    "requests": dict(container.resources.requests or {}),
                }
            }
            for container in pod.spec.containers or ()
            if container.resources is not None
        ]
    }
