"""All job summaries: the existing jobs, the desired ConfigMaps of each, and the time of the next deletion. Pure.

Two jobs of different kinds with one name in a namespace want the same ConfigMap; the one that was observed first has
it.

Source: docs/reference/kubernetes.md, "Identity of a job summary" and "States of a job summary".
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.formats.ascend.pod_annotations import SERIAL_NUMBER
from berth.formats.ascend.rank_table import INITIALIZING
from berth.formats.kubernetes.objects import ConfigMap, Node, Pod, PodGroup
from berth.formats.whole_numbers import whole_number
from berth.services.summary.record import (
    STATUSES,
    Chunk,
    JobStatus,
    NodeView,
    Observed,
    Operator,
    Record,
    advance,
    chunks,
)
from berth.services.summary.views import RING, GroupView, JobName, PodView, group_view, is_summary, pod_view

_NPU: Final = "huawei.com/npu"
Place = tuple[str, str]
"""(namespace, name of a ConfigMap)"""


class Change(msgspec.Struct, frozen=True):
    """Desired ConfigMaps of a job."""

    job: JobName
    chunks: list[Chunk]
    """In order; empty: they must be deleted."""


class JobSummaries:
    """Jobs and their summaries.

    Args:
        kept_s: How long the summary of a deleted job is kept.
    """

    def __init__(self, *, kept_s: int) -> None:
        self._kept_s = kept_s
        self._pods: dict[str, PodView] = {}
        self._groups: dict[Place, GroupView] = {}
        self._nodes: dict[str, NodeView] = {}
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self._groups_of: dict[str, dict[Place, GroupView]] = {}
        self._named: dict[tuple[str, str], dict[str, int]] = {}
        """Number of the pods and PodGroups of each job (uid), by namespace and name of the job."""
        self._records: dict[str, Record] = {}
        self._holders: dict[Place, str] = {}
        """Job (uid) that uses the name of a summary."""
        self._touched: dict[str, None] = {}
        self._desired: dict[str, list[Chunk]] = {}

    def __contains__(self, uid: object) -> bool:
        """Whether a job exists or has a summary."""
        return uid in self._records or uid in self._pods_of or uid in self._groups_of

    def __len__(self) -> int:
        return len(self._records)

    def set_pod(self, pod: Pod) -> None:
        """Take the current state of a pod."""
        view = pod_view(pod)
        before = self._pods.get(pod.metadata.uid)
        if view == before:
            return
        self.drop_pod(pod.metadata.uid)
        if view is not None:
            self._pods[view.uid] = view
            self._count(view.job, 1)
            self._pods_of.setdefault(view.job.uid, {})[view.uid] = view
            self._touched[view.job.uid] = None

    def drop_pod(self, uid: str) -> None:
        """Take the deletion of a pod."""
        view = self._pods.pop(uid, None)
        if view is not None:
            _remove(self._pods_of, view.job.uid, uid)
            self._count(view.job, -1)
            self._touched[view.job.uid] = None

    def keep_pods(self, uids: Iterable[str]) -> None:
        """Drop all other pods."""
        for uid in sorted(self._pods.keys() - set(uids)):
            self.drop_pod(uid)

    def set_group(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        place = (group.metadata.namespace, group.metadata.name)
        view = group_view(group)
        if view == self._groups.get(place):
            return
        self.drop_group(place)
        if view is not None:
            self._groups[place] = view
            self._count(view.job, 1)
            self._groups_of.setdefault(view.job.uid, {})[place] = view
            self._touched[view.job.uid] = None

    def drop_group(self, place: Place) -> None:
        """Take the deletion of a PodGroup."""
        view = self._groups.pop(place, None)
        if view is not None:
            _remove(self._groups_of, view.job.uid, place)
            self._count(view.job, -1)
            self._touched[view.job.uid] = None

    def keep_groups(self, places: Iterable[Place]) -> None:
        """Drop all other PodGroups."""
        for place in sorted(self._groups.keys() - set(places)):
            self.drop_group(place)

    def set_node(self, node: Node) -> None:
        """Take the current state of a node. The summaries of its running jobs follow with their next change."""
        self._nodes[node.metadata.name] = NodeView(node.metadata.annotation(SERIAL_NUMBER))

    def restore(self, found: Iterable[ConfigMap]) -> None:
        """Restore the summaries that an earlier run wrote, before the first :meth:`settle`."""
        parts: dict[tuple[str, str], dict[int, ConfigMap]] = {}
        for item in found:
            if is_summary(item):
                data = item.data or {}
                index = _number(data.get("cm_index", ""))
                parts.setdefault((item.metadata.namespace, data["job_id"]), {})[index] = item
        for (namespace, uid), chunks_found in sorted(parts.items()):
            if uid not in self._records:
                self._restore(namespace, uid, chunks_found)

    def _restore(self, namespace: str, uid: str, found: dict[int, ConfigMap]) -> None:
        first = found[min(found)]  # not always chunk 0: the process may end between two writes
        data = first.data or {}
        labels = first.metadata.labels or {}
        status: JobStatus = next((known for known in STATUSES if known == data.get("job_status")), "pending")
        total = max(_number(data.get("total", "")), 1)
        listed = [index for index in sorted(found) if index < total] if 0 in found else []
        tables = [(found[index].data or {}).get("hccl.json", "") for index in listed]
        job = JobName(namespace, "", data.get("job_name", ""), uid)
        self._records[uid] = Record(
            job=job,
            time_s=_number(data.get("time", "")),
            status=status,
            operator=Operator.DELETE if data.get("operator") == Operator.DELETE else Operator.ADD,
            delete_s=_number(data.get("deleteTime", "")),
            framework=data.get("framework", ""),
            sid=data.get("sid", ""),
            resource="" if RING[0] in labels else _NPU,
            tables=[table or INITIALIZING for table in tables] or [INITIALIZING],
            shared=data.get("sharedTorIp", ""),
            master=data.get("masterAddr", ""),
        )
        self._holders.setdefault((namespace, job.name), uid)
        self._touched[uid] = None

    def settle(self, now_s: int) -> list[Change]:
        """Changes of the affected jobs, in order of namespace, name and uid."""
        for uid, record in self._records.items():
            if record.operator == Operator.DELETE and record.delete_s + self._kept_s <= now_s:
                self._touched[uid] = None
        found: dict[str, Change] = {}
        while self._touched:  # the end of one job may give its name to another
            touched, self._touched = sorted(self._touched), {}
            for uid in touched:
                found.update({change.job.uid: change for change in self._settle(uid, now_s)})
        return sorted(
            found.values(),
            key=lambda change: (change.job.namespace, change.job.name, bool(change.chunks), change.job.uid),
        )

    def next_due_s(self) -> int | None:
        """Time of the next deletion of a summary; None for never."""
        due = [item.delete_s + self._kept_s for item in self._records.values() if item.operator == Operator.DELETE]
        return min(due, default=None)

    def wanted(self, uid: str) -> list[Chunk]:
        """Desired ConfigMaps of a job; empty when it should have none."""
        return self._desired.get(uid, [])

    def _settle(self, uid: str, now_s: int) -> list[Change]:
        observed = Observed(
            sorted(self._pods_of.get(uid, {}).values(), key=lambda pod: pod.name),
            next((view for _, view in sorted(self._groups_of.get(uid, {}).items())), None),
        )
        job = observed.pods[0].job if observed.pods else observed.group.job if observed.group is not None else None
        record = self._records.get(uid)
        gone: list[Change] = []
        if record is None:
            if job is None or not self._has_summary(observed):
                return []
            holder = self._holders.get((job.namespace, job.name), uid)
            if holder != uid:
                if holder in self._pods_of or holder in self._groups_of:
                    return []  # the other job exists: two kinds of jobs with one name
                gone = [self._forget(self._records[holder])]
            self._holders[job.namespace, job.name] = uid
            record = self._records[uid] = Record(job=job, time_s=now_s)
        elif job is not None:
            record.job = job
        was = record.operator
        advance(record, observed, self._nodes, now_s)
        if record.operator != was and record.operator == Operator.DELETE:
            self._touched.update(dict.fromkeys(self._same_name(record.job)))
        if record.operator == Operator.DELETE and record.delete_s + self._kept_s <= now_s:
            return [*gone, self._forget(record)]
        wanted = chunks(record)
        if wanted == self._desired.get(uid):
            return gone
        self._desired[uid] = wanted
        return [*gone, Change(record.job, wanted)]

    @staticmethod
    def _has_summary(observed: Observed) -> bool:
        """Whether a job gets a summary: it has a PodGroup or requests chips, and none of its chips are shared."""
        if any(pod.is_shared for pod in observed.pods) or (observed.group is not None and observed.group.is_shared):
            return False
        return observed.group is not None or any(pod.resource for pod in observed.pods)

    def _same_name(self, job: JobName) -> list[str]:
        """Other existing jobs (uid) of the same name."""
        return sorted(self._named.get((job.namespace, job.name), {}).keys() - {job.uid})

    def _count(self, job: JobName, change: int) -> None:
        """Count the pods and PodGroups of a job."""
        counts = self._named.setdefault((job.namespace, job.name), {})
        counts[job.uid] = counts.get(job.uid, 0) + change
        if not counts[job.uid]:
            del counts[job.uid]
        if not counts:
            del self._named[job.namespace, job.name]

    def _forget(self, record: Record) -> Change:
        job = record.job
        place = (job.namespace, job.name)
        del self._records[job.uid]
        self._desired.pop(job.uid, None)
        if self._holders.get(place) == job.uid:
            del self._holders[place]
            self._touched.update(dict.fromkeys(self._same_name(job)))
        return Change(job, [])


def _number(text: str) -> int:
    """A whole number from a summary; 0 for any other text."""
    return whole_number(text) or 0


def _remove(
    index: dict[str, dict[str, PodView]] | dict[str, dict[Place, GroupView]], uid: str, key: str | Place
) -> None:
    found = index[uid]
    del found[key]  # type: ignore[arg-type]  # the key is of the index's own type
    if not found:
        del index[uid]
