"""Constraints of a pod beside chips, cpu, memory, labels and taints: in the terms of Kubernetes, in one normal form.

The normal form leaves nothing to look up later. ``matchLabels`` are expressions ``In`` with one value. The keys of
``matchLabelKeys`` and ``mismatchLabelKeys`` that the pod has are expressions ``In`` and ``NotIn`` with its value; keys
that it lacks are left out. A term of pod affinity that names neither namespaces nor a namespace selector names the
namespace of the pod. Expressions, labels, ports, resources and claims are sorted.
"""

from typing import Annotated, Literal

from msgspec import Meta

from berth.schemas.constraints import Expression, Term
from berth.schemas.message import Part

Protocol = Literal["TCP", "UDP", "SCTP"]
Amount = Annotated[int, Meta(ge=0, description="base units of the resource: bytes, or a number")]
Weight = Annotated[int, Meta(ge=1, le=100)]


class LabelSelector(Part, frozen=True, cache_hash=True):
    """Selection of pods, or namespaces, by labels: all expressions hold; without any it selects everything.

    Operators are ``In``, ``NotIn``, ``Exists`` and ``DoesNotExist``. Where a selector is None, nothing is selected.
    """

    expressions: tuple[Expression, ...] = ()


class PodTerm(Part, frozen=True, cache_hash=True):
    """Pods near which a pod must be, or must not be: those selected that are on a node with the same topology value."""

    topology_key: Annotated[str, Meta(min_length=1)]
    """Label of nodes whose value is the topology value; a node without it has none."""
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    """Namespaces of the pods, beside those of ``namespace_selector``."""
    namespace_selector: LabelSelector | None = None


class SpreadTerm(Part, frozen=True, cache_hash=True):
    """Even distribution of the selected pods of the pod's namespace over the values of a topology key."""

    topology_key: Annotated[str, Meta(min_length=1)]
    max_skew: Annotated[int, Meta(ge=1)]
    """Most pods of a value above the value with the fewest."""
    selector: LabelSelector | None = None
    min_domains: Annotated[int, Meta(ge=0)] = 0
    """With fewer values the fewest pods are 0; 0: not given, as 1."""
    by_affinity: bool = True
    """``nodeAffinityPolicy: Honor``: only nodes that the pod's selector and node affinity allow are counted."""
    by_taints: bool = False
    """``nodeTaintsPolicy: Honor``: only nodes whose taints the pod tolerates are counted."""


class HostPort(Part, frozen=True, cache_hash=True):
    """Port of the node that a pod takes."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Protocol = "TCP"
    address: str = ""
    """Address of the node; empty: all of them (``0.0.0.0``)."""


class PreferredNodes(Part, frozen=True, cache_hash=True):
    """Nodes that a pod prefers."""

    weight: Weight
    term: Term


class PreferredPods(Part, frozen=True, cache_hash=True):
    """Pods near which a pod prefers to be, or not to be."""

    weight: Weight
    term: PodTerm


class PodConstraints(Part, frozen=True, cache_hash=True):
    """Constraints of a pod. Preferences order nodes and exclude none."""

    affinity: tuple[PodTerm, ...] = ()
    """Required pod affinity: each term must hold."""
    anti_affinity: tuple[PodTerm, ...] = ()
    """Required pod anti-affinity: no term may hold, and no selected pod comes near afterwards."""
    spread: tuple[SpreadTerm, ...] = ()
    """Topology spread with ``DoNotSchedule``."""
    ports: tuple[HostPort, ...] = ()
    resources: tuple[tuple[str, Amount], ...] = ()
    """Resources beside chips, cpu and memory, above 0."""
    claims: tuple[str, ...] = ()
    """PersistentVolumeClaims in the pod's namespace. Pods with claims of their own are tasks of their own."""
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    preferred_near: tuple[PreferredPods, ...] = ()
    preferred_apart: tuple[PreferredPods, ...] = ()
    preferred_spread: tuple[SpreadTerm, ...] = ()
    """Topology spread with ``ScheduleAnyway``."""


class PodProfile(Part, frozen=True, cache_hash=True):
    """What the constraints of a pod, and those of others, depend on."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the pod, sorted by key."""
    constraints: PodConstraints = PodConstraints()
    is_whole: bool = True
    """False: namespace and labels are left out as far as ``constraints`` does not need them, for no required
    anti-affinity of another pod selects the pod."""
