"""Marks of bound pods as far as they count, and the pods whose marks do not: these stop nobody. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB, JOB_UID, MAC, RANK, STEP
from berth.formats.kubernetes.bound_pods import counted
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Pod
from berth.services.inventory.pod_rows import PodRow

_FALSE: Final = "false marks"
"""Key of the one sentence about all such pods: a tenant cannot have an Event written for each."""


class CountedMarks:
    """Takes the marks off pods on which nothing proves them.

    Marks that counted once count as long as the pod is known: whoever changes them later does not take the pod from its
    job, nor its chips.

    Args:
        marks: Says whether marks count.
        row: The last state of a bound pod, by uid.
    """

    def __init__(self, marks: MarkProofs, row: Callable[[str], PodRow | None]) -> None:
        self._marks = marks
        self._row = row
        self._false: dict[str, Involved] = {}
        """Pods with marks that do not count, by uid."""

    def of(self, pod: Pod) -> Pod:
        """A pod with the marks that count; one without a node is as it is: nothing reads its marks."""
        meta = pod.metadata
        found = counted(meta, self._marks) if pod.spec.node_name else meta
        known = self._row(meta.uid) if self._marks.are_checked else None
        if found is meta and (known is None or known.identity is None or meta.annotation(JOB_UID)):
            self._false.pop(meta.uid, None)
            return pod
        if found is not meta:
            self._false[meta.uid] = Involved(
                api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid
            )
        return msgspec.structs.replace(pod, metadata=_as_known(found, known))

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self._false.pop(uid, None)

    @property
    def false_count(self) -> int:
        """Number of pods with marks that do not count."""
        return len(self._false)

    @property
    def involved(self) -> Involved | None:
        """The pod that the Event is about: the one that has such marks for longest."""
        return next(iter(self._false.values()), None)

    def sentences(self) -> Mapping[str, str]:
        """The sentence about all of them, if there are any."""
        first = self.involved
        if first is None:
            return {}
        return {
            _FALSE: f"pod {first.namespace}/{first.name}: it has annotations by which Berth knows its pods, and no"
            f" {MAC} that proves them; they are ignored, and berth_inventory_falsely_marked_pods counts such pods"
        }


def _as_known(meta: Meta, known: PodRow | None) -> Meta:
    """Metadata with the marks that counted before."""
    if known is None or known.identity is None:
        return meta
    identity = known.identity
    marks = {
        JOB: identity.job,
        JOB_UID: identity.uid,
        ATTEMPT: str(identity.attempt),
        RANK: str(identity.rank),
        **({STEP: str(known.step)} if known.step else {}),
    }
    return msgspec.structs.replace(meta, annotations={**(meta.annotations or {}), **marks})
