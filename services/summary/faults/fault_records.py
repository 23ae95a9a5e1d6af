"""What the ConfigMaps about faults should say, from pods, PodGroups, nodes and messages of the bus. Pure."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth.formats.ascend.fault_counters import NODES_KEY, RETRIES_KEY, nodes_text, read_retries, retries_text
from berth.formats.ascend.reschedule_reasons import KEY, fitted, read_restarts
from berth.formats.kubernetes.objects import Node, Pod, PodGroup
from berth.schemas.facts import HealthSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.status import JobStatus
from berth.services.summary.faults.jobs import FaultJobs, RequestKey
from berth.services.summary.faults.nodes import FaultyNodes
from berth.services.summary.faults.resets import ResetUpdate, update_of
from berth.services.summary.faults.restarts import RestartRecords

COUNTERS_BYTES_MAX: Final = 1_000_000
"""Limit of both values of ``vcjob-fault-npu-cm``, below the size of a ConfigMap, which is 1 MiB with its metadata."""
_FORGOTTEN_MIN: Final = 1_000
_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})


class Wanted(msgspec.Struct, frozen=True):
    """Keys and values of the two ConfigMaps."""

    counters: dict[str, str]
    reasons: dict[str, str]
    cut: str = ""
    """What is left out, as a sentence; empty for nothing."""


class FaultRecords:
    """Jobs with faults, their restarts, and faulty nodes.

    Args:
        log_time: Time of a log line for seconds since 1970.
        kept_s: How long the restarts of a job that is gone are kept.
        changed: Called when something changes.
    """

    def __init__(self, log_time: Callable[[int], str], *, kept_s: int, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._jobs = FaultJobs()
        self._nodes = FaultyNodes()
        self._restarts = RestartRecords(log_time, kept_s=kept_s)
        self._statuses: dict[RequestKey, JobStatus] = {}
        """Statuses of jobs that are not over and recover, or have recovered."""
        self._live: dict[RequestKey, str] = {}
        """Uids of all requests that are not over."""
        self._tidied = 0
        """Requests that were remembered when those that are over were last forgotten."""

    def set_pod(self, pod: Pod) -> None:
        """Take the current state of a pod."""
        view = self._jobs.set_pod(pod)
        if view is not None:
            if view.placed is not None:
                self._restarts.add_pod(view.placed)
            self._changed()

    def drop_pod(self, uid: str) -> None:
        """Take the deletion of a pod."""
        self._jobs.drop_pod(uid)
        self._changed()

    def keep_pods(self, uids: Iterable[str]) -> None:
        """Drop all other pods."""
        self._jobs.keep_pods(uids)
        self._changed()

    def set_group(self, group: PodGroup) -> None:
        """Take the current state of a PodGroup."""
        self._jobs.set_group(group)
        self._changed()

    def drop_group(self, key: str) -> None:
        """Take the deletion of a PodGroup."""
        self._jobs.drop_group(key)
        self._changed()

    def keep_groups(self, keys: Iterable[str]) -> None:
        """Drop all other PodGroups."""
        self._jobs.keep_groups(keys)
        self._changed()

    def set_node(self, node: Node) -> None:
        """Take the current state of a node."""
        self._nodes.set_node(node)

    def drop_node(self, name: str) -> None:
        """Take the deletion of a node."""
        self._nodes.drop_node(name)

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Drop all other nodes."""
        self._nodes.keep_nodes(names)

    def begin(self) -> None:
        """Forget all statuses: all that there are follow."""
        self._statuses.clear()
        self._live.clear()

    def take_status(self, status: JobStatus) -> None:
        """Take the status of a request."""
        request = (status.namespace, status.name)
        if status.phase in _OVER:
            self._live.pop(request, None)
            self._statuses.pop(request, None)
        else:
            self._live[request] = status.uid
            if status.recovery is not None:
                self._statuses[request] = status
            else:
                self._statuses.pop(request, None)
        self._changed()

    def take_group(self, fact: GroupSeen) -> None:
        """Take the requests of a PodGroup."""
        self._jobs.set_group_fact(fact)
        self._changed()

    def take_health(self, fact: HealthSeen) -> None:
        """Take the health of a domain.

        Raises:
            ValueError: A column is damaged.
            IndexError: An index is outside its table.
        """
        self._nodes.set_health(fact)
        self._changed()

    def restore_counters(self, text: str) -> None:
        """Take the counters of an earlier run, after all pods and PodGroups.

        Raises:
            ReportError: They cannot be read.
        """
        self._jobs.restore(read_retries(text))

    def restore_reasons(self, text: str) -> None:
        """Take the restarts of an earlier run.

        Raises:
            ReportError: They cannot be read.
        """
        self._restarts.restore(read_restarts(text))

    def settle(self, now_s: int) -> Wanted:
        """What the two ConfigMaps should say.

        Args:
            now_s: The time, in seconds since 1970.
        """
        self._tidy()
        self._jobs.count()
        for request, status in sorted(self._statuses.items()):
            key, recovery = self._jobs.key_of(request), status.recovery
            if key and recovery is not None:
                self._restarts.add_recovery(key, status.uid, recovery)
                if recovery.retries_left >= 0:
                    self._jobs.lower_retries(key, status.uid, recovery)
        retries = retries_text(self._jobs.counters)
        nodes = nodes_text(self._nodes.found())
        kept, reasons = fitted(self._restarts.settle(self._jobs.__contains__, now_s))
        self._restarts.restore(kept)
        cut = ""
        if len(nodes) + len(retries) > COUNTERS_BYTES_MAX:
            cut = f"{NODES_KEY} and {RETRIES_KEY} have {len(nodes)} and {len(retries)} bytes, {COUNTERS_BYTES_MAX} fit"
            nodes = ""
        return Wanted({NODES_KEY: nodes, RETRIES_KEY: retries}, {KEY: reasons}, cut)

    def next_due_s(self) -> int | None:
        """Time at which something changes by itself; None for never."""
        return self._restarts.next_due_s()

    def updates(self) -> list[ResetUpdate]:
        """Orders to agents of jobs, by namespace and name."""
        found = []
        for request, status in self._statuses.items():
            key = self._jobs.key_of(request)
            owner = self._jobs.owner(key)
            update = update_of(status, owner, self._jobs.rules(key)) if owner is not None else None
            if update is not None:
                found.append(update)
        return sorted(found)

    def _tidy(self) -> None:
        """Forget requests that are over, once in a while."""
        if len(self._restarts) <= 2 * self._tidied + _FORGOTTEN_MIN:
            return
        self._restarts.keep(frozenset(self._live.values()) | self._jobs.placed())
        self._jobs.keep_requests(self._live)
        self._tidied = len(self._restarts)
