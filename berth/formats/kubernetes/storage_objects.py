"""Objects of storage, and namespaces, as lean structs: only the fields that Berth reads.

Source: Kubernetes API, v1 and storage.k8s.io/v1.
"""

from berth.formats.kubernetes.lean import LabelSelector, Lean, Meta, NodeSelector
from berth.formats.kubernetes.pod_spec import Requirements
from berth.formats.whole_numbers import Int32


class Namespace(Lean, frozen=True):
    """A namespace."""

    metadata: Meta = Meta()


class ClaimSpec(Lean, frozen=True):
    """Spec of a claim."""

    access_modes: list[str] | None = None
    resources: Requirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_name: str = ""
    volume_attributes_class_name: str | None = None


class Phase(Lean, frozen=True):
    """Status of a claim or of a volume."""

    phase: str = ""


class PersistentVolumeClaim(Lean, frozen=True):
    """A claim to a volume."""

    metadata: Meta = Meta()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimReference(Lean, frozen=True):
    """Claim that has a volume, or for which it is reserved."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Lean, frozen=True):
    """Nodes from which a volume can be used."""

    required: NodeSelector | None = None


class CsiSource(Lean, frozen=True):
    """Volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Lean, frozen=True):
    """Spec of a volume."""

    access_modes: list[str] | None = None
    capacity: dict[str, str | int | float] | None = None
    claim_ref: ClaimReference | None = None
    csi: CsiSource | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    volume_attributes_class_name: str | None = None


class PersistentVolume(Lean, frozen=True):
    """A volume."""

    metadata: Meta = Meta()
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class TopologyExpression(Lean, frozen=True):
    """Values that a label of a node may have."""

    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Lean, frozen=True):
    """Conditions that must all hold."""

    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(Lean, frozen=True):
    """A storage class."""

    metadata: Meta = Meta()
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologyTerm] | None = None


class CsiDriverSpec(Lean, frozen=True):
    """Spec of a CSI driver."""

    storage_capacity: bool = False


class CsiDriver(Lean, frozen=True):
    """A CSI driver."""

    metadata: Meta = Meta()
    spec: CsiDriverSpec = CsiDriverSpec()


class Allocatable(Lean, frozen=True):
    """Volumes that a driver can attach to a node."""

    count: Int32 | None = None


class CsiNodeDriver(Lean, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: Allocatable | None = None


class CsiNodeSpec(Lean, frozen=True):
    """CSI drivers of a node."""

    drivers: list[CsiNodeDriver] | None = None


class CsiNode(Lean, frozen=True):
    """CSI drivers of the node of that name."""

    metadata: Meta = Meta()
    spec: CsiNodeSpec = CsiNodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """Most volumes of each driver that has a limit."""
        drivers = ((one.name, one.allocatable) for one in self.spec.drivers or ())
        return {name: max(found.count, 0) for name, found in drivers if found is not None and found.count is not None}


class CsiStorageCapacity(Lean, frozen=True):
    """Free capacity for new volumes of a storage class on some nodes."""

    metadata: Meta = Meta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None
