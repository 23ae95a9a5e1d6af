"""Facts for constraints of pods: what pods of other schedulers use on nodes, and labels of namespaces.

Pods that Berth has placed are not in these facts: their places are in the ledger, their labels and constraints in
their requests. So binding a gang changes no fact of this module. Placed by Berth are the pods that have a fact of their
own (``fact.pod`` without ``foreign``).
"""

from typing import ClassVar, Final

from berth.schemas.message import Message, Part
from berth.schemas.pod_constraints import HostPort, PodTerm
from berth.schemas.units import UnixMs

UNLIMITED: Final = (1 << 32) - 1
"""Value of ``pods_max`` for a node that limits no pods."""


class PodSet(Part, frozen=True):
    """Pods that no selector distinguishes."""

    namespace: str
    labels: dict[str, str] = {}
    ending: bool = False
    """They are being deleted: topology spread no longer counts them."""


class ClaimName(Part, frozen=True):
    """Name of a PersistentVolumeClaim."""

    namespace: str
    name: str


class RankName(Part, frozen=True):
    """A pod that Berth has placed."""

    uid: str
    attempt: int
    rank: int


class UsageSeen(Message, frozen=True):
    """What the pods of other schedulers use on the nodes of a domain, and what the nodes limit. Without nodes: nothing.

    Pods count that are bound and have not ended. A node may be in the facts of several domains; its usage is their
    sum, and its limits the smallest. Columns per node, in the order of the sorted name table: ``pods`` and ``pods_max``
    ``<u4``. All others are sparse: a row per pair of a node (``..._node``, ``<u4``, row in the name table, ascending)
    and an entry of a table (``..._index``, ``<u4``), sorted by both, no pair twice. Empty columns have no rows.
    """

    KIND: ClassVar[str] = "fact.usage"

    domain: str
    names: bytes
    pods: bytes = b""
    """Number of pods; empty: no node has any."""
    pods_max: bytes = b""
    """``status.allocatable.pods``, :data:`UNLIMITED` without; empty: no node has a limit."""
    resources: list[str] = []
    """Names of resources beside chips, cpu, memory and pods, sorted."""
    offered_node: bytes = b""
    offered_index: bytes = b""
    """Into ``resources``."""
    offered: bytes = b""
    """``<u8``: what the node gives in all. A resource without a row is not there."""
    used_node: bytes = b""
    used_index: bytes = b""
    """Into ``resources``."""
    used: bytes = b""
    """``<u8``: what the pods request."""
    pod_sets: list[PodSet] = []
    """Distinct, in the order of namespace, labels, ``ending``. A writer may leave out labels that no selector of the
    cell names, and all sets while there is no selector."""
    set_node: bytes = b""
    set_index: bytes = b""
    """Into ``pod_sets``."""
    set_pods: bytes = b""
    """``<u4``: number of pods; empty: 1 in each row."""
    terms: list[PodTerm] = []
    """Distinct required anti-affinity terms of the pods."""
    term_node: bytes = b""
    term_index: bytes = b""
    """Into ``terms``: some pod on the node has the term."""
    ports: list[HostPort] = []
    """Distinct host ports that pods take."""
    port_node: bytes = b""
    port_index: bytes = b""
    """Into ``ports``."""
    claims: list[ClaimName] = []
    """Distinct PersistentVolumeClaims that pods use."""
    claim_node: bytes = b""
    claim_index: bytes = b""
    """Into ``claims``."""
    drivers: list[str] = []
    """CSI drivers, sorted."""
    limit_node: bytes = b""
    limit_index: bytes = b""
    """Into ``drivers``."""
    limit: bytes = b""
    """``<u4``: most volumes of the driver on the node (CSINode)."""
    relabelled: list[RankName] = []
    """Pods that Berth has placed and whose labels have changed since. Each is in ``pod_sets`` with its labels of today,
    and its request no longer contains them. Nothing else of it is in this fact."""
    at_ms: UnixMs = 0


class NamespaceSeen(Message, frozen=True):
    """Labels of a namespace."""

    KIND: ClassVar[str] = "fact.namespace"

    name: str
    labels: dict[str, str] = {}
    gone: bool = False
    at_ms: UnixMs = 0
