"""Facts about volumes: claims, volumes, storage classes with their capacities, and failures to bind a claim."""

from typing import ClassVar, Literal

from berth.schemas.constraints import Term
from berth.schemas.message import Message, Part
from berth.schemas.pod_constraints import Amount, LabelSelector
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import ClaimName

ClaimPhase = Literal["pending", "bound", "lost"]
AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
VolumeMode = Literal["Filesystem", "Block"]


class ClaimSeen(Message, frozen=True):
    """A PersistentVolumeClaim."""

    KIND: ClassVar[str] = "fact.claim"

    namespace: str
    name: str
    uid: str = ""
    gone: bool = False
    phase: ClaimPhase = "pending"
    """``bound`` only when the binding is complete (annotation ``pv.kubernetes.io/bind-completed``)."""
    volume: str = ""
    """Name of its volume; empty without. With phase ``pending``: its volume was chosen, and is not bound yet."""
    storage_class: str = ""
    size: Amount = 0
    """Bytes that it requests."""
    access: list[AccessMode] = []
    mode: VolumeMode = "Filesystem"
    selector: LabelSelector | None = None
    """Selection of volumes by their labels; None: any volume."""
    selected_node: str = ""
    """Annotation ``volume.kubernetes.io/selected-node``: its volume is being made for this node."""
    deleting: bool = False
    at_ms: UnixMs = 0


class VolumeSeen(Message, frozen=True):
    """A PersistentVolume."""

    KIND: ClassVar[str] = "fact.volume"

    name: str
    uid: str = ""
    gone: bool = False
    affinity: list[Term] = []
    """Required node affinity: one of the terms must hold; empty: every node. The zones and regions that labels of the
    volume name (``topology.kubernetes.io/zone``, values joined by ``__``) are in each term, as ``In``."""
    labels: dict[str, str] = {}
    storage_class: str = ""
    size: Amount = 0
    """Bytes."""
    access: list[AccessMode] = []
    mode: VolumeMode = "Filesystem"
    claim: ClaimName | None = None
    """``claimRef``: the claim that has it, or for which it is reserved; None: free."""
    claim_uid: str = ""
    """Uid of ``claimRef``; empty: reserved for a claim of that name."""
    driver: str = ""
    """CSI driver; empty without. A volume of another kind counts against no limit."""
    handle: str = ""
    """Identity of the volume for its driver."""
    deleting: bool = False
    at_ms: UnixMs = 0


class StorageCapacity(Part, frozen=True):
    """Free capacity for new volumes on some nodes (CSIStorageCapacity)."""

    nodes: LabelSelector | None = None
    """Nodes with access, by their labels; None: no node."""
    capacity: Amount = 0
    """Bytes."""
    volume_max: Amount = 0
    """Largest volume, bytes; 0: not given, ``capacity`` counts."""


class StorageSeen(Message, frozen=True):
    """A StorageClass, and the capacities that its driver reports."""

    KIND: ClassVar[str] = "fact.storage"

    name: str
    gone: bool = False
    provisioner: str = ""
    """``kubernetes.io/no-provisioner``: volumes are not made."""
    waits: bool = False
    """``WaitForFirstConsumer``: a volume is chosen when a pod is placed."""
    topologies: list[Term] = []
    """``allowedTopologies``: one of the terms must hold for the node; empty: every node."""
    has_capacity: bool = False
    """The driver reports capacities (``CSIDriver.spec.storageCapacity``): a new volume needs one that suffices."""
    capacities: list[StorageCapacity] = []
    at_ms: UnixMs = 0


class UnboundSeen(Message, frozen=True):
    """Nodes and volumes with which a PersistentVolumeClaim could not be bound, over all attempts.

    It counts while the claim has this uid and is not bound. Without nodes and volumes: nothing is left out.
    """

    KIND: ClassVar[str] = "fact.unbound"

    namespace: str
    name: str
    uid: str
    """Uid of the claim."""
    nodes: list[str] = []
    """Nodes for which no volume could be made, sorted."""
    volumes: list[str] = []
    """Volumes that the claim could not get, sorted."""
    reason: str = ""
    """The last failure, as a sentence."""
    at_ms: UnixMs = 0
