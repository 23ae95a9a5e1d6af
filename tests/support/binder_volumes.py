"""Claims and volumes for tests of the binder, on an API server in memory."""

import dataclasses
from typing import Any

import msgspec

from berth.formats.kubernetes.storage import claim_of
from berth.formats.kubernetes.storage_objects import PersistentVolumeClaim
from berth.schemas.placement import ClaimVolume
from berth.services.binder.cluster import Gang
from tests.support.binder_world import World
from tests.support.kube_binder import a_gang

CLAIMS = "/api/v1/namespaces/ns/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"
MARK = "berth/volume-for"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
Tree = dict[str, Any]


def a_claim(name: str, *, volume: str = "", phase: str = "Pending", **meta: object) -> Tree:
    """A claim that waits for its first pod; with ``volume`` one that is being bound to it."""
    spec: Tree = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **meta},
        "spec": spec | ({"volumeName": volume} if volume else {}),
        "status": {"phase": phase},
    }


def a_volume(name: str, *, claim: str = "", uid: str = "", phase: str = "Available", **meta: object) -> Tree:
    """A volume, free or with the claim of this name."""
    reference = {"namespace": "ns", "name": claim, **({"uid": uid} if uid else {})}
    spec: Tree = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    return {
        "metadata": {"name": name, **meta},
        "spec": spec | ({"claimRef": reference} if claim else {}),
        "status": {"phase": phase},
    }


def claiming(name: str, nodes: list[str], *claims: ClaimVolume, attempt: int = 1) -> Gang:
    """A gang of pods with a chip each, and the claims to be bound before them."""
    gang = a_gang(name, nodes, [(rank,) for rank in range(len(nodes))], attempt=attempt)
    return dataclasses.replace(gang, placement=msgspec.structs.replace(gang.placement, claims=list(claims)))


def wants(claim: str, *, rank: int = 0, volume: str = "") -> ClaimVolume:
    """A claim of a gang, as its placement says it."""
    return ClaimVolume(claim, f"uid-{claim}", rank, volume)


def claim(world: World, name: str) -> Tree:
    """A claim as it is now."""
    return world.kube.object(f"{CLAIMS}/{name}")


def notes(found: Tree) -> Tree:
    """Annotations of an object."""
    return dict(found["metadata"].get("annotations") or {})


def reference(world: World, name: str) -> Tree | None:
    """``claimRef`` of a volume."""
    found: Tree | None = world.kube.object(f"{VOLUMES}/{name}")["spec"].get("claimRef")
    return found


def bind_claim(world: World, name: str, volume: str) -> None:
    """Complete the binding of a claim, as the controller does, and say so."""
    now = claim(world, name)
    now["spec"]["volumeName"] = volume
    now["metadata"]["annotations"] = notes(now) | BOUND
    world.kube.put(CLAIMS, now | {"status": {"phase": "Bound"}})
    say_claim(world, name)


def refuse_claim(world: World, name: str) -> None:
    """Take the selected node away, as a provisioner does that cannot make a volume there, and say so."""
    now = claim(world, name)
    now["metadata"]["annotations"] = {key: value for key, value in notes(now).items() if key != SELECTED}
    world.kube.put(CLAIMS, now)
    say_claim(world, name)


def say_claim(world: World, name: str) -> None:
    """Let the binder have the fact of a claim as it is now."""
    found = msgspec.convert(claim(world, name), PersistentVolumeClaim)
    world.cluster.take_claim(claim_of(found))
