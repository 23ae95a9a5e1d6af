"""Jobs as pods and PodGroups show them: owners, labels for faults, and remaining retries. Pure.

Source: docs/reference/faults.md, "What is written after a fault".
"""

from collections.abc import Container, Iterable, Mapping

from berth.core.requests.fault_rules import FaultRules, rules_of
from berth.formats.ascend.fault_counters import Retries, job_key
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.schemas.fault_facts import GroupSeen, joined
from berth.schemas.recovery import RecoveryStatus
from berth.services.summary.faults.views import GroupView, JobOwner, PodView, group_view, pod_view

RequestKey = tuple[str, str]
"""Namespace and name of a job request."""


class FaultJobs:
    """Jobs by key, which is their namespace, a slash, and the name of their PodGroup."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        self._pods_of: dict[str, dict[str, PodView]] = {}
        self._groups: dict[str, GroupView] = {}
        self._key_of: dict[RequestKey, str] = {}
        """Job of a request, by its pods, or by the fact about its PodGroup."""
        self.counters: dict[str, Retries] = {}
        """Counters of jobs that have been seen running."""
        self._restored: dict[str, Retries] = {}
        """Counters of an earlier run, until their jobs are seen."""
        self._touched: dict[str, None] = {}
        self._rules: dict[str, FaultRules] = {}
        """What jobs say about faults, until one of their labels may have changed."""

    def set_pod(self, pod: Pod) -> PodView | None:
        """Take the current state of a pod; its view if it has changed."""
        uid, view = pod.metadata.uid, pod_view(pod)
        if view == self._pods.get(uid):
            return None
        self.drop_pod(uid)
        if view is not None:
            self._pods[uid] = view
            self._pods_of.setdefault(view.key, {})[uid] = view
            self._touch(view.key)
            if view.placed is not None:
                self._key_of[view.owner.namespace, view.placed.job] = view.key
        return view

    def drop_pod(self, uid: str) -> None:
        """Take the deletion of a pod."""
        view = self._pods.pop(uid, None)
        if view is None:
            return
        pods = self._pods_of[view.key]
        del pods[uid]
        if not pods:
            del self._pods_of[view.key]
        self._touch(view.key)

    def keep_pods(self, uids: Iterable[str]) -> None:
        """Drop all other pods."""
        for uid in sorted(self._pods.keys() - set(uids)):
            self.drop_pod(uid)

    def set_group(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        view = group_view(group)
        key = job_key(group.metadata.namespace, group.metadata.name)
        if view == self._groups.get(key):
            return
        self.drop_group(key)
        if view is not None:
            self._groups[key] = view
            self._touch(key)

    def drop_group(self, key: str) -> None:
        """Take the deletion of a PodGroup."""
        if self._groups.pop(key, None) is not None:
            self._touch(key)

    def keep_groups(self, keys: Iterable[str]) -> None:
        """Drop all other PodGroups."""
        for key in sorted(self._groups.keys() - set(keys)):
            self.drop_group(key)

    def set_group_fact(self, fact: GroupSeen) -> None:
        """Take which requests belong to a PodGroup."""
        for job in () if fact.gone else fact.jobs:
            self._key_of.setdefault((fact.namespace, job), job_key(fact.namespace, fact.name))

    def restore(self, counters: Mapping[str, Retries]) -> None:
        """Take the counters of an earlier run, after all pods and PodGroups."""
        self._restored = dict(counters)
        self._touched.update(dict.fromkeys([*self._pods_of, *self._groups]))

    def key_of(self, request: RequestKey) -> str:
        """Key of the job of a request; empty while unknown."""
        return self._key_of.get(request, "")

    def keep_requests(self, requests: Container[RequestKey]) -> None:
        """Forget to which jobs all other requests belong, unless the jobs exist."""
        self._key_of = {one: key for one, key in self._key_of.items() if one in requests or key in self}

    def placed(self) -> frozenset[str]:
        """Uids of the requests that have bound pods."""
        return frozenset(pod.placed.uid for pod in self._pods.values() if pod.placed is not None)

    def __contains__(self, key: object) -> bool:
        """Whether a job exists."""
        return key in self._groups or key in self._pods_of

    def owner(self, key: str) -> JobOwner | None:
        """Owner of a job; None if it does not exist."""
        if key in self._groups:
            return self._groups[key].owner
        return next((pod.owner for _, pod in sorted(self._pods_of.get(key, {}).items())), None)

    def rules(self, key: str) -> FaultRules:
        """What a job says about faults now."""
        known = self._rules.get(key)
        if known is None:
            group = self._groups.get(key)
            pods = sorted(self._pods_of.get(key, {}).items())
            labels = joined([*([group.labels] if group is not None else ()), *(pod.labels for _, pod in pods)])
            known = self._rules[key] = rules_of(labels, group.annotations if group is not None else {})
        return known

    def lower_retries(self, key: str, uid: str, recovery: RecoveryStatus) -> None:
        """Take the retries that a step of a recovery leaves, once no pod that it replaces is there.

        Args:
            key: The job.
            uid: Of its request.
            recovery: The step; its number of retries counts.
        """
        owner = self.owner(key)
        if owner is None:
            return
        before = self.counters.get(key)
        is_known = before is not None and before.uid == owner.uid and before.times <= recovery.retries_left
        if not is_known and not self._has_leaving(key, uid, recovery):
            self.counters[key] = Retries(owner.uid, recovery.retries_left)

    def _has_leaving(self, key: str, uid: str, recovery: RecoveryStatus) -> bool:
        """Whether a pod that a step of a recovery replaces is still there."""
        ranks = frozenset(recovery.ranks)
        placed = [pod.placed for pod in self._pods_of.get(key, {}).values() if pod.placed is not None]
        return any(
            (pod.uid, pod.attempt) == (uid, recovery.attempt) and pod.step < recovery.step and pod.rank in ranks
            for pod in placed
        )

    def count(self) -> None:
        """Bring counters in line with the jobs that there are now."""
        touched, self._touched = sorted(self._touched), {}
        for key in touched:
            self._count(key)

    def _touch(self, key: str) -> None:
        self._touched[key] = None
        self._rules.pop(key, None)

    def _count(self, key: str) -> None:
        owner, counter = self.owner(key), self.counters.get(key)
        if owner is None:
            self.counters.pop(key, None)
            return
        if counter is not None and counter.uid == owner.uid:
            return
        self.counters.pop(key, None)
        restored = self._restored.pop(key, None)
        if restored is not None and restored.uid == owner.uid:
            self.counters[key] = restored
        elif self._is_running(key):
            retries = self.rules(key).retries
            if retries:
                self.counters[key] = Retries(owner.uid, retries)

    def _is_running(self, key: str) -> bool:
        group = self._groups.get(key)
        if group is not None:
            return group.is_running
        return any(pod.is_running for pod in self._pods_of.get(key, {}).values())
