"""Bound pods that nobody would make anew, if they were deleted.

A gang of which a pod cannot be bound is undone only where its controllers make new pods in place of those that are
deleted, and do not count that as a failure. Where that is not known, the pods stay.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.lean import OwnerReference
from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerObject
from berth.formats.kubernetes.workloads.registry import kinds, paths
from berth.runtime.kube.port import Api, RefusedError
from berth.services.binder.attempt_progress import Progress
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.members import Member
from berth.services.binder.pod_binding import PodBinding, involved_pod

Tell: TypeAlias = Callable[[Involved, str, str, str], None]
_EVENTS_MAX: Final = 16
"""Maximum number of pods of a gang that get an Event each."""
_KEPT_AGAIN_S: Final = 15.0
"""Pause before a gang that is not undone is tried again."""


class RemadePods:
    """Finds pods that nobody would make anew.

    Args:
        api: The API server.
        pods: Reads pods.
    """

    def __init__(self, api: Api, pods: PodBinding) -> None:
        self._api = api
        self._pods = pods

    async def lost_with(self, gang: Gang, members: Mapping[int, Member]) -> str:
        """Why pods of a gang are not to be deleted, as a sentence about the first of them; empty if all may be.

        Args:
            gang: The attempt that bound them.
            members: Pods that are bound, or may be, by rank.

        Raises:
            TransientError: The server did not answer.
        """
        known: dict[tuple[str, str, str], str] = {}
        for _, member in sorted(members.items()):
            try:
                pod = await self._pods.read(gang.namespace, member.pod)
            except RefusedError as error:
                return f"pod {member.pod} may not be read: {error.reason}"
            if pod is None or pod.has_ended or not pod.belongs_to(gang.uid, gang.attempt):
                continue
            owner = pod.metadata.controller
            if owner is None:
                return f"pod {member.pod} has no controller that makes it anew"
            key = (owner.api_version, owner.kind, owner.name)
            if key not in known:
                known[key] = await self._why_not(gang.namespace, owner)
            if known[key]:
                return f"pod {member.pod}: {known[key]}"
        return ""

    async def keep(
        self, gang: Gang, progress: Progress, members: Mapping[int, Member], now_s: float, tell: Tell
    ) -> None:
        """Go on with a gang that cannot be undone, because a bound pod of it would not be made anew.

        Args:
            gang: The attempt.
            progress: Its progress; some rank cannot be bound.
            members: Its pods, by rank.
            now_s: The monotonic time.
            tell: Called to write an Event: object, reason, message, uid of the job.

        Raises:
            NotYetError: It goes on: the other ranks wait at their places.
            TransientError: The API server did not answer.
        """
        bound = {rank: members[rank] for rank in progress.done | progress.unclear if rank in members}
        why = await self.lost_with(gang, bound) if bound else ""
        if not why:
            return
        rank, reason = min(progress.failures.items())
        kept = f"rank {rank} of the gang cannot be bound: {reason}; the pods that are bound stay: {why}"
        if kept != progress.kept:
            for member in islice((members[one] for one in sorted(members)), _EVENTS_MAX):
                tell(involved_pod(gang.namespace, member.pod, member.uid), "FailedBinding", kept, gang.uid)
        progress.kept = kept
        progress.try_all_again(now_s)
        raise NotYetError(kept, retry_after_s=_KEPT_AGAIN_S)

    async def _why_not(self, namespace: str, owner: OwnerReference) -> str:
        """Why a controller does not make a deleted pod anew, or counts the deletion; empty if it does and does not."""
        name = f"{owner.kind} {owner.name}"
        kind = kinds().of_controller(owner.api_version, owner.kind)
        if kind is not None and kind.counts_deleted:
            return f"{name} counts a deleted pod as failed"
        if kind is None or kind.makes_anew is None:
            return f"it is not known whether {name} makes a deleted pod anew"
        try:
            found = await self._read(OwnerKey(kind.name, namespace, owner.name), kind.makes_anew.struct)
        except RefusedError as error:
            return f"{name} may not be read: {error.reason}"
        if found is None or found.metadata.uid != owner.uid or found.metadata.deletion_timestamp is not None:
            return f"{name} is gone"
        return kind.makes_anew.why_not(found, name)

    async def _read(self, key: OwnerKey, struct: type[OwnerObject]) -> OwnerObject | None:
        """A controller, in the first version of its API that has it; None if it is gone.

        Raises:
            RefusedError: It may not be read.
            TransientError: The server did not answer.
        """
        for path in paths(key):
            try:
                return await self._api.get(path, struct)
            except RefusedError as error:
                if not error.is_absent:
                    raise
        return None
