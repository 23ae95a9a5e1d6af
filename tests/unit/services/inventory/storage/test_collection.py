"""Facts about claims, volumes, storage classes and namespaces."""

from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.storage_objects import (
    CsiDriver,
    CsiStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from berth.schemas.constraints import Expression, Term
from berth.schemas.pod_constraints import LabelSelector
from berth.schemas.usage_facts import ClaimName, NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageCapacity, StorageSeen, VolumeSeen
from berth.services.inventory.storage.collection import Storage
from berth.services.inventory.storage.object_facts import StorageFact

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
NEVER = Expression("kubernetes.io/hostname", "In")
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
NOWHERE = tuple(Expression(key, "DoesNotExist") for key in sorted((ZONE, REGION, OLD_ZONE, OLD_REGION)))


def a_claim(name: str = "c", *, status: str = "", annotations: object = None, **spec: object) -> PersistentVolumeClaim:
    meta = {"name": name, "namespace": "team", "uid": "u", "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": status}}, PersistentVolumeClaim)


def a_volume(name: str = "v", *, status: str = "Available", labels: object = None, **spec: Any) -> PersistentVolume:  # noqa: ANN401
    meta = {"name": name, "uid": "u", "labels": labels}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": status}}, PersistentVolume)


def settle(storage: Storage) -> list[StorageFact]:
    found = storage.due(7)
    for fact in found:
        storage.note_published(fact)
    assert storage.due(8) == [], "nothing has changed, so nothing is said"
    return found


def told(storage: Storage) -> StorageFact:
    (fact,) = settle(storage)
    return fact


def test_a_claim_with_everything() -> None:
    storage = Storage()
    selector = {"matchLabels": {"kind": "fast"}}
    storage.claims.put(
        a_claim(
            annotations={"volume.kubernetes.io/selected-node": "n1"},
            accessModes=["ReadWriteOnce", "Odd", "ReadOnlyMany"],
            resources={"requests": {"storage": "1500m"}},
            selector=selector,
            storageClassName="later",
            volumeMode="Block",
        )
    )
    assert told(storage) == ClaimSeen(
        "team", "c", "u", storage_class="later", size=2, access=["ReadOnlyMany", "ReadWriteOnce"], mode="Block",
        selector=LabelSelector((Expression("kind", "In", ("fast",)),)), selected_node="n1", at_ms=7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "phase", "volume"),
    [
        (a_claim(), "pending", ""),
        (a_claim(volumeName="v"), "pending", "v"),
        (a_claim(volumeName="v", annotations=BOUND), "bound", "v"),
        (a_claim(volumeName="v", annotations=BOUND, status="Lost"), "lost", "v"),
        (a_claim(annotations=BOUND), "pending", ""),
    ],
)
def test_phases_of_a_claim(claim: PersistentVolumeClaim, phase: str, volume: str) -> None:
    storage = Storage()
    storage.claims.put(claim)
    fact = told(storage)
    assert isinstance(fact, ClaimSeen)
    assert (fact.phase, fact.volume) == (phase, volume)


def test_the_old_annotation_of_the_class_counts_before_the_field() -> None:
    storage = Storage()
    storage.claims.put(a_claim(annotations={"volume.beta.kubernetes.io/storage-class": "old"}, storageClassName="new"))
    fact = told(storage)
    assert isinstance(fact, ClaimSeen)
    assert fact.storage_class == "old"


def test_a_claim_with_an_invalid_selector_or_a_class_of_attributes_gets_no_existing_volume() -> None:
    for spec in (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        {"volumeAttributesClassName": "gold", "selector": {"matchLabels": {"a": "b"}}},
    ):
        storage = Storage()
        storage.claims.put(a_claim(**spec))
        fact = told(storage)
        assert isinstance(fact, ClaimSeen)
        assert fact.selector == LabelSelector((NEVER,))


def test_a_volume_with_everything() -> None:
    storage = Storage()
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}]}]
    storage.volumes.put(
        a_volume(
            status="Released",
            labels={"kind": "fast"},
            accessModes=["ReadWriteMany"],
            capacity={"storage": "1500m"},
            claimRef={"namespace": "team", "name": "c", "uid": "cu"},
            csi={"driver": "d", "volumeHandle": "h"},
            nodeAffinity={"required": {"nodeSelectorTerms": terms}},
            storageClassName="later",
        )
    )
    assert told(storage) == VolumeSeen(
        "v", "u", affinity=[Term((Expression("host", "In", ("n1",)),))], labels={"kind": "fast"}, storage_class="later",
        size=1, access=["ReadWriteMany"], claim=ClaimName("team", "c"), claim_uid="cu", driver="d", handle="h", at_ms=7,
    )  # fmt: skip


@pytest.mark.parametrize("given", [{"status": "Pending"}, {"status": "Failed"}, {"volumeAttributesClassName": "gold"}])
def test_a_volume_that_nobody_may_get_is_not_told(given: dict[str, Any]) -> None:
    storage = Storage()
    storage.volumes.put(a_volume())
    assert len(settle(storage)) == 1
    storage.volumes.put(a_volume(**given))
    assert told(storage) == VolumeSeen("v", gone=True, at_ms=7)


@pytest.mark.parametrize("terms", [[], [{}], [{"matchExpressions": [{"key": "", "operator": "Exists"}]}]])
def test_node_affinity_that_cannot_be_read_allows_no_node(terms: list[dict[str, Any]]) -> None:
    storage = Storage()
    storage.volumes.put(a_volume(nodeAffinity={"required": {"nodeSelectorTerms": terms}}))
    fact = told(storage)
    assert isinstance(fact, VolumeSeen)
    assert fact.affinity == [Term((NEVER,))]


def test_zones_of_a_bound_volume_are_conditions_on_nodes() -> None:
    def affinity(labels: dict[str, str], status: str = "Bound", **spec: Any) -> list[Term]:  # noqa: ANN401
        storage = Storage()
        storage.volumes.put(a_volume(labels=labels, status=status, claimRef={"name": "c"}, **spec))
        fact = told(storage)
        assert isinstance(fact, VolumeSeen)
        return fact.affinity

    assert affinity({"kind": "fast"}) == []
    assert affinity({ZONE: "a"}, status="Available") == []
    in_zone = Expression(ZONE, "In", ("a", "b"))
    assert affinity({ZONE: "b__a"}) == [Term((in_zone,)), Term(NOWHERE)]
    old = Expression(OLD_ZONE, "In", ("a",))
    no_old = Expression(OLD_ZONE, "DoesNotExist")
    assert affinity({OLD_ZONE: "a"}) == [
        Term((old,)), Term((no_old, Expression(ZONE, "In", ("a",)))), Term(NOWHERE),
    ]  # fmt: skip
    host = {"matchExpressions": [{"key": "host", "operator": "Exists"}]}
    found = affinity({ZONE: "a", REGION: "r"}, nodeAffinity={"required": {"nodeSelectorTerms": [host]}})
    here = Expression("host", "Exists")
    assert found == [
        Term((here, Expression(ZONE, "In", ("a",)), Expression(REGION, "In", ("r",)))), Term((here, *NOWHERE)),
    ]  # fmt: skip


def a_class(name: str = "later", **more: object) -> StorageClass:
    return msgspec.convert({"metadata": {"name": name}, "provisioner": "d", **more}, StorageClass)


def a_capacity(name: str, **more: object) -> CsiStorageCapacity:
    tree = {"metadata": {"name": name, "namespace": "kube-system"}, "storageClassName": "later", **more}
    return msgspec.convert(tree, CsiStorageCapacity)


def test_a_storage_class_with_the_capacities_of_its_driver() -> None:
    storage = Storage()
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}, {}]
    storage.classes.replace([a_class(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies)])
    fact = told(storage)
    plain = StorageSeen(
        "later", provisioner="d", waits=True, topologies=[Term((Expression(ZONE, "In", ("a",)),))], at_ms=7
    )
    assert fact == plain
    storage.drivers.put(msgspec.convert({"metadata": {"name": "d"}, "spec": {"storageCapacity": True}}, CsiDriver))
    storage.capacities.put(a_capacity("z", capacity="1Ki", maximumVolumeSize="100", nodeTopology={}))
    storage.capacities.put(a_capacity("a", nodeTopology={"matchLabels": {ZONE: "a"}}))
    expected = [
        StorageCapacity(LabelSelector((Expression(ZONE, "In", ("a",)),))),
        StorageCapacity(LabelSelector(), 1024, 100),
    ]
    assert told(storage) == msgspec.structs.replace(plain, has_capacity=True, capacities=expected)
    storage.capacities.drop(a_capacity("a"))
    assert told(storage) == msgspec.structs.replace(plain, has_capacity=True, capacities=expected[1:])
    storage.classes.drop(a_class())
    assert told(storage) == StorageSeen("later", gone=True, at_ms=7)


def test_a_class_whose_only_topology_has_no_condition_allows_no_node() -> None:
    storage = Storage()
    storage.classes.put(a_class(allowedTopologies=[{}]))
    fact = told(storage)
    assert isinstance(fact, StorageSeen)
    assert (fact.topologies, fact.waits) == ([Term((NEVER,))], False)


def test_labels_of_namespaces() -> None:
    def a_namespace(name: str, **labels: str) -> Namespace:
        return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)

    storage = Storage()
    storage.namespaces.replace([a_namespace("b", y="1", x="2"), a_namespace("a")])
    assert settle(storage) == [NamespaceSeen("a", at_ms=7), NamespaceSeen("b", {"x": "2", "y": "1"}, at_ms=7)]
    storage.namespaces.replace([a_namespace("b", x="2", y="1")])
    assert settle(storage) == [NamespaceSeen("a", gone=True, at_ms=7)]


def test_after_a_restart_only_what_differs_is_said() -> None:
    storage = Storage()
    storage.claims.put(a_claim("stays"))
    storage.claims.put(a_claim("goes"))
    storage.volumes.put(a_volume())
    before = settle(storage)
    again = Storage()
    again.restore([*before, NamespaceSeen("old", gone=True)])
    again.claims.replace([a_claim("stays")])
    again.volumes.replace([a_volume(labels={"new": "label"})])
    volume, claim = settle(again)
    assert (volume.name, volume.gone, claim) == ("v", False, ClaimSeen("team", "goes", gone=True, at_ms=7))


def test_a_claim_that_another_object_replaces_is_told_anew() -> None:
    storage = Storage()
    storage.claims.put(a_claim())
    settle(storage)
    storage.claims.drop(a_claim())
    storage.claims.put(
        msgspec.structs.replace(a_claim(), metadata=msgspec.structs.replace(a_claim().metadata, uid="new"))
    )
    fact = told(storage)
    assert isinstance(fact, ClaimSeen)
    assert (fact.uid, fact.gone) == ("new", False)
