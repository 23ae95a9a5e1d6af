"""Claims, volumes and storage classes in the words of messages.

What cannot be read never allows more: an invalid selector selects no volume, and invalid node affinity allows no node.

Labels of zones and regions of a volume count as for the plug-in VolumeZone of kube-scheduler.

Source: Kubernetes, PersistentVolume, PersistentVolumeClaim, StorageClass and CSIStorageCapacity.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, Literal, get_args

from berth.formats.kubernetes.lean import LabelSelector as Selector
from berth.formats.kubernetes.node_terms import terms_of
from berth.formats.kubernetes.pod_terms import selection_of
from berth.formats.kubernetes.storage_objects import (
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyTerm,
)
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.formats.quantities import QuantityError, quantity
from berth.schemas.constraints import Expression, Term
from berth.schemas.pod_constraints import LabelSelector
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import AccessMode, ClaimSeen, StorageCapacity, StorageSeen, VolumeMode, VolumeSeen

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_ZONE_KEYS: Final[Mapping[str, str]] = {
    "topology.kubernetes.io/zone": "",
    "topology.kubernetes.io/region": "",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that tie them to nodes; of an old one, the label that counts on nodes without the old one."""
_ZONE_SEPARATOR: Final = "__"
_NO_VALUE: Final = Expression("kubernetes.io/hostname", "In")
_NO_NODE: Final = (Term((_NO_VALUE,)),)
_NO_VOLUME: Final = LabelSelector((_NO_VALUE,))
_ACCESS: Final = frozenset(get_args(AccessMode))
_AMOUNT_MAX: Final = (1 << 62) - 1


def claim_of(found: PersistentVolumeClaim) -> ClaimSeen:
    """A claim. One with a class of volume attributes gets no volume that is there already, only a new one."""
    meta, spec = found.metadata, found.spec
    requests = (spec.resources.requests if spec.resources is not None else None) or {}
    phase: Literal["pending", "bound", "lost"] = "pending"
    if found.status.phase == "Lost":
        phase = "lost"
    elif spec.volume_name and BIND_COMPLETED in (meta.annotations or {}):
        phase = "bound"
    selector = _selector(spec.selector)
    return ClaimSeen(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        phase=phase,
        volume=spec.volume_name,
        storage_class=meta.annotation(_BETA_CLASS) or spec.storage_class_name or "",
        size=_bytes(requests.get("storage"), round_up=True),
        access=_access(spec.access_modes),
        mode=_mode(spec.volume_mode),
        selector=_NO_VOLUME if spec.volume_attributes_class_name else selector,
        selected_node=meta.annotation(SELECTED_NODE),
        deleting=meta.deletion_timestamp is not None,
    )


def volume_of(found: PersistentVolume) -> VolumeSeen | None:
    """A volume; None for one that no claim has and none may get: it is not available, or has a class of attributes."""
    meta, spec = found.metadata, found.spec
    reference = spec.claim_ref
    if reference is None and (found.status.phase != "Available" or spec.volume_attributes_class_name):
        return None
    labels = meta.labels or {}
    affinity = _affinity(found)
    return VolumeSeen(
        name=meta.name,
        uid=meta.uid,
        affinity=list(_within_zones(affinity, labels) if found.status.phase == "Bound" else affinity),
        labels=labels,
        storage_class=meta.annotation(_BETA_CLASS) or spec.storage_class_name,
        size=_bytes((spec.capacity or {}).get("storage")),
        access=_access(spec.access_modes),
        mode=_mode(spec.volume_mode),
        claim=ClaimName(reference.namespace, reference.name) if reference is not None else None,
        claim_uid=reference.uid if reference is not None else "",
        driver=spec.csi.driver if spec.csi is not None else "",
        handle=spec.csi.volume_handle if spec.csi is not None else "",
        deleting=meta.deletion_timestamp is not None,
    )


def storage_of(found: StorageClass, *, has_capacity: bool, capacities: Iterable[CsiStorageCapacity]) -> StorageSeen:
    """A storage class.

    Args:
        found: The class.
        has_capacity: Its driver reports capacities.
        capacities: What is reported for the class, in an order that lasts.
    """
    return StorageSeen(
        name=found.metadata.name,
        provisioner=found.provisioner,
        waits=found.volume_binding_mode == "WaitForFirstConsumer",
        topologies=_topologies(found.allowed_topologies or ()),
        has_capacity=has_capacity,
        capacities=[_capacity(one) for one in capacities],
    )


def _topologies(terms: Iterable[TopologyTerm]) -> list[Term]:
    """Terms over labels of nodes; one without conditions matches none. Where no other is left, no node is allowed."""
    given = list(terms)
    read = (
        Term(tuple(Expression(one.key, "In", tuple(one.values or ())) for one in term.match_label_expressions or ()))
        for term in given
    )
    found = [term for term in read if term.expressions]
    return found or (list(_NO_NODE) if given else [])


def _capacity(found: CsiStorageCapacity) -> StorageCapacity:
    return StorageCapacity(
        nodes=_selector(found.node_topology),
        capacity=_bytes(found.capacity),
        volume_max=_bytes(found.maximum_volume_size),
    )


def _selector(given: Selector | None) -> LabelSelector | None:
    try:
        return selection_of("selector", given)
    except WrongFieldError:
        return _NO_VOLUME


def _affinity(found: PersistentVolume) -> tuple[Term, ...]:
    required = found.spec.node_affinity.required if found.spec.node_affinity is not None else None
    if required is None:
        return ()
    try:
        return terms_of("spec.nodeAffinity.required.nodeSelectorTerms", required.node_selector_terms)
    except WrongFieldError:
        return _NO_NODE


def _within_zones(terms: tuple[Term, ...], labels: Mapping[str, str]) -> tuple[Term, ...]:
    """Terms with what the labels of a volume say of zones and regions; a node in no zone and no region is in all."""
    ways = [_ways(key, labels[key]) for key in _ZONE_KEYS if key in labels]
    if not ways:
        return terms
    nowhere = tuple(Expression(key, "DoesNotExist") for key in sorted(_ZONE_KEYS))
    found = [tuple(one for way in chosen for one in way) for chosen in product(*ways)]
    return tuple(Term((*term.expressions, *way)) for term in terms or (Term(()),) for way in (*found, nowhere))


def _ways(key: str, value: str) -> list[tuple[Expression, ...]]:
    """How a node can be in one of the zones, or regions, of a label of a volume."""
    values = tuple(sorted(set(value.split(_ZONE_SEPARATOR))))
    newer = _ZONE_KEYS[key]
    found: list[tuple[Expression, ...]] = [(Expression(key, "In", values),)]
    if newer:
        found.append((Expression(key, "DoesNotExist"), Expression(newer, "In", values)))
    return found


def _access(modes: Iterable[str] | None) -> list[AccessMode]:
    """Known access modes, sorted."""
    return sorted(set(modes or ()) & _ACCESS)  # type: ignore[arg-type]  # words of AccessMode


def _mode(mode: str) -> VolumeMode:
    return "Block" if mode == "Block" else "Filesystem"


def _bytes(value: object, *, round_up: bool = False) -> int:
    """Bytes in a quantity; 0 for none and for what is no quantity."""
    if value is None:
        return 0
    try:
        amount = quantity(value)
    except QuantityError:
        return 0
    whole = -(-amount.numerator // amount.denominator) if round_up else amount.numerator // amount.denominator
    return min(whole, _AMOUNT_MAX)
