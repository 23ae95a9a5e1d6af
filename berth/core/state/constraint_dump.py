"""What changed for constraints of pods, as snapshots hold it."""

import msgspec

from berth.core.changes import Pods
from berth.schemas.pod_constraints import PodTerm


class ConstraintsDump(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What changed for constraints of pods since classes were woken last."""

    freed: list[str] = []
    """Nodes on which constraints may forbid less than before, by name."""
    moved: list[Pods] = []
    """Pods that came to some nodes or left some, in order."""
    repels_less: bool = False
    """A pod with a required anti-affinity left a node."""
    relabelled: bool = False
    """Nodes or namespaces came, went, or have other labels or taints."""
    terms: list[PodTerm] = []
    """Required anti-affinity terms that bear on pods and did not before, or do no longer, in the order of their
    text."""
    renamed: bool = False
    """Namespaces came, went, or have other labels."""
