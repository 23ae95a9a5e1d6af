"""Records of restarts: which pods caused them, and where they were. Pure.

A recovery is one restart, whatever number of steps it takes: its first time is the time of the record, by which a later
run recognises it.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.formats.ascend.reschedule_reasons import JobRestarts, PodReason, Restarts, restart_of, with_restart
from berth.schemas.recovery import RecoveryStatus
from berth.services.summary.faults.views import PlacedPod

_KEPT: Final = 2
"""Pods of a rank that are remembered: the newest, and the one that it replaced."""


class _Recorded(NamedTuple):
    since_ms: int
    ranks: tuple[int, ...]


class RestartRecords:
    """Restarts by job.

    Args:
        log_time: Time of a log line for seconds since 1970.
        kept_s: How long the restarts of a job that is gone are kept.
    """

    def __init__(self, log_time: Callable[[int], str], *, kept_s: int) -> None:
        self._log_time = log_time
        self._kept_s = kept_s
        self._pods: dict[tuple[str, str], dict[tuple[int, int], list[PlacedPod]]] = {}
        """Pods by namespace and uid of the request, and by attempt and rank, the newest first: whoever may write pods
        says nothing about jobs of other namespaces."""
        self._restarts: Restarts = {}
        self._recorded: dict[str, _Recorded] = {}
        """What the newest record of a request says, by its uid."""
        self._gone_s: dict[str, int] = {}

    def restore(self, restarts: Mapping[str, JobRestarts]) -> None:
        """Take the restarts that an earlier run wrote."""
        self._restarts = dict(restarts)

    def add_pod(self, pod: PlacedPod) -> None:
        """Remember where a pod is."""
        known = self._pods.setdefault((pod.namespace, pod.uid), {}).setdefault((pod.attempt, pod.rank), [])
        if all(pod.name != one.name or pod.step != one.step for one in known):
            known.append(pod)
            known.sort(key=lambda one: -one.step)
            del known[_KEPT:]

    def __len__(self) -> int:
        return len(self._pods)

    def keep(self, uids: Container[str]) -> None:
        """Forget the pods of all other requests."""
        self._pods = {key: pods for key, pods in self._pods.items() if key[1] in uids}
        self._recorded = {uid: recorded for uid, recorded in self._recorded.items() if uid in uids}

    def add_recovery(self, key: str, uid: str, recovery: RecoveryStatus) -> None:
        """Take a step of a recovery.

        Args:
            key: The job.
            uid: Of its request.
            recovery: The step.
        """
        if recovery.how in {"mark", "backup"} or not recovery.faulty:
            return
        at_s = recovery.since_ms // 1000
        before = self._restarts.get(key)
        newest = next(iter(before.restarts or ()), None) if before is not None else None
        recorded = self._recorded.get(uid)
        ranks = tuple(recovery.faulty)
        namespace = key.partition("/")[0]
        if recorded is not None and recorded.since_ms == recovery.since_ms:
            ranks = (*recorded.ranks, *(rank for rank in ranks if rank not in recorded.ranks))
        if recorded == _Recorded(recovery.since_ms, ranks):
            return
        self._recorded[uid] = _Recorded(recovery.since_ms, ranks)
        if before is None or newest is None or newest.at_s != at_s:
            pods = [self._reason((namespace, uid), recovery, rank) for rank in ranks]
            self._restarts[key] = with_restart(before, key, restart_of(at_s, self._log_time(at_s), pods))
        else:
            listed = list(newest.pods or ())
            known = [pod.rank for pod in listed]
            more = [self._reason((namespace, uid), recovery, rank) for rank in ranks]
            listed += [pod for pod in more if pod.rank not in known]
            restart = restart_of(at_s, newest.log_time, listed)
            self._restarts[key] = msgspec.structs.replace(before, restarts=[restart, *(before.restarts or ())[1:]])

    def settle(self, exists: Callable[[str], bool], now_s: int) -> Restarts:
        """Restarts of all jobs that exist, or have not been gone for long.

        Args:
            exists: Whether a job exists.
            now_s: The time, in seconds since 1970.
        """
        for key in list(self._restarts):
            if exists(key):
                self._gone_s.pop(key, None)
            elif self._gone_s.setdefault(key, now_s) + self._kept_s <= now_s:
                del self._restarts[key], self._gone_s[key]
        return self._restarts

    def next_due_s(self) -> int | None:
        """Time at which the restarts of the next job are dropped; None for never."""
        first = min(self._gone_s.values(), default=None)
        return None if first is None else first + self._kept_s

    def _reason(self, request: tuple[str, str], recovery: RecoveryStatus, rank: int) -> PodReason:
        """Pod of a rank that a step replaces, as far as it is known; the request by its namespace and uid."""
        known = self._pods.get(request, {}).get((recovery.attempt, rank), [])
        pod = next((one for one in known if one.step < recovery.step), None)
        if pod is None:
            node = recovery.nodes[0] if len(recovery.nodes) == 1 else ""
            return PodReason(recovery.kind, "", node, str(rank))
        return PodReason(recovery.kind, pod.name, pod.node, pod.index)
