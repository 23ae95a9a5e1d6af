"""Claims, volumes and storage classes of a history, and the facts that tell of them."""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from berth.schemas.constraints import Expression, Term
from berth.schemas.message import Message
from berth.schemas.pod_constraints import LabelSelector
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import (
    AccessMode,
    ClaimSeen,
    StorageCapacity,
    StorageSeen,
    UnboundSeen,
    VolumeSeen,
)
from tests.fuzz.constraint_draws import CLAIMS
from tests.fuzz.families import ZONES
from tests.support.constraint_worlds import HOST, having

Told = Iterator[tuple[str, Message]]
DRIVERS: Final = ("disk.example.com", "slow.example.com")
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_VOLUMES: Final = ("v0", "v1", "v2", "v3", "v4")
_CLASSES: Final = ("later", "later", "later", "local", "local", "local", "capped", "capped", "now", "unknown")
_MODES: Final[tuple[tuple[AccessMode, ...], ...]] = (
    ("ReadWriteOnce",),
    ("ReadWriteOnce",),
    ("ReadWriteOnce", "ReadOnlyMany"),
    ("ReadWriteOnce",),
    ("ReadWriteOncePod",),
    (),
)
_MANY: Final[tuple[AccessMode, ...]] = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod")
_SIZES: Final = (1, 5, 10)


class Storage:
    """What the facts have said of volumes.

    Args:
        names: All nodes that are ever there.
        traits: What there is.
    """

    def __init__(self, names: list[str], traits: tuple[str, ...]) -> None:
        self._names = names
        self._is_there = "volumes" in traits
        self.claims: dict[ClaimName, ClaimSeen] = {}
        self.volumes: dict[str, VolumeSeen] = {}
        self.storage: dict[str, StorageSeen] = {}
        self.failures: dict[ClaimName, UnboundSeen] = {}

    def begin(self) -> Told:
        """Classes, and some claims and volumes; the others come later."""
        if not self._is_there:
            return
        chance = random.Random(len(self._names))  # noqa: S311  # the same for the same cell
        for number in range(len(_CLASSES)):
            yield self._class(number, chance)
        for number in range(3):
            yield self._volume(number, chance)
            yield self._claim(number, chance)
        yield from self._bind(number, chance)

    def change(self, one: int, two: int, chance: random.Random) -> Told:
        """A claim, a volume or a class comes, changes or goes."""
        if not self._is_there:
            return
        match two % 9:
            case 0 | 1 | 2:
                yield self._claim(one, chance)
            case 3 | 4:
                yield from self._bind(one, chance)
            case 5 | 6:
                yield self._volume(one, chance)
            case 7:
                yield self._failure(one, chance)
            case _:
                yield self._class(one, chance)

    def _claim(self, number: int, chance: random.Random) -> tuple[str, Message]:
        name = ClaimName("default", CLAIMS[number % len(CLAIMS)])
        if name in self.claims and chance.random() < 0.2:
            return self._tell_claim(ClaimSeen(name.namespace, name.name, gone=True))
        waits = ["waits"] * 12
        match chance.choice((*waits, "chosen", "bound", "bound", "lost", "node", "node", "deleting")):
            case "chosen":
                more: dict[str, Any] = {"volume": chance.choice(_VOLUMES)}
            case "bound":
                more = {"phase": "bound", "volume": chance.choice(_VOLUMES)}
            case "lost":
                more = {"phase": "lost", "volume": "gone"}
            case "node":
                more = {"selected_node": chance.choice(self._names)}
            case "deleting":
                more = {"deleting": True}
            case _:
                more = {}
        return self._tell_claim(
            ClaimSeen(
                name.namespace,
                name.name,
                uid=f"{name.name}-{chance.choice((0, 0, 1))}",
                storage_class=chance.choice((*_CLASSES, *("later", "local") * 3)),
                size=chance.choice(_SIZES),
                access=list(chance.choice(_MODES)),
                mode=chance.choice(("Filesystem",) * 5 + ("Block",)),
                selector=chance.choice((None, None, None, None, None, having(kind="fast"), LabelSelector())),
                **more,
            )
        )

    def _bind(self, number: int, chance: random.Random) -> Told:
        """A claim is bound to a volume, wherever its pods may be; the volume says it first, or only it says so."""
        name = ClaimName("default", CLAIMS[number % len(CLAIMS)])
        claim = self.claims.get(name)
        free = sorted(volume for volume, seen in self.volumes.items() if seen.claim is None)
        if claim is None or not free:
            return
        volume = self.volumes[chance.choice(free)]
        yield self._tell_volume(msgspec.structs.replace(volume, claim=name, claim_uid=claim.uid))
        if chance.random() < 0.8:
            yield self._tell_claim(msgspec.structs.replace(claim, phase="bound", volume=volume.name, deleting=False))

    def _failure(self, number: int, chance: random.Random) -> tuple[str, Message]:
        """A claim could not be bound with some nodes or volumes; or that counts no longer, or is of a former claim."""
        name = ClaimName("default", CLAIMS[number % len(CLAIMS)])
        claim = self.claims.get(name)
        nodes = chance.sample(self._names, min(chance.choice((0, 0, 1, 3)), len(self._names)))
        fact = UnboundSeen(
            name.namespace,
            name.name,
            claim.uid if claim is not None and chance.random() < 0.8 else f"{name.name}-9",
            nodes=sorted(nodes),
            volumes=sorted(chance.sample(_VOLUMES, chance.choice((0, 0, 1, 2)))),
        )
        self.failures[name] = fact
        return f"unbound.{name.namespace}.{name.name}", fact

    def failure(self, claim: ClaimSeen) -> UnboundSeen:
        """With what a claim could not be bound."""
        nothing = UnboundSeen(claim.namespace, claim.name, claim.uid)
        found = self.failures.get(ClaimName(claim.namespace, claim.name), nothing)
        return found if found.uid == claim.uid else nothing

    def _volume(self, number: int, chance: random.Random) -> tuple[str, Message]:
        name = _VOLUMES[number % len(_VOLUMES)]
        if name in self.volumes and chance.random() < 0.3:
            return self._tell_volume(VolumeSeen(name, gone=True))
        claim = ClaimName("default", chance.choice(CLAIMS)) if chance.random() < 0.1 else None
        return self._tell_volume(
            VolumeSeen(
                name,
                affinity=self._ties(chance),
                labels={"kind": chance.choice(("fast", "slow"))},
                storage_class=chance.choice(_CLASSES[:6]),
                size=chance.choice((*_SIZES, 10, 10)),
                access=list(chance.choice((*_MODES, _MANY, _MANY, _MANY))),
                mode=chance.choice(("Filesystem",) * 5 + ("Block",)),
                claim=claim,
                claim_uid=f"{claim.name}-0" if claim is not None and chance.random() < 0.5 else "",
                driver=chance.choice((*DRIVERS, "")),
                handle=chance.choice((name, name, "shared")),
                deleting=chance.random() < 0.1,
            )
        )

    def _ties(self, chance: random.Random) -> list[Term]:
        """Node affinity of a volume."""
        host = Term((Expression(HOST, "In", tuple(chance.sample(self._names, min(2, len(self._names))))),))
        zone = Term((Expression("zone", chance.choice(("In", "NotIn")), (chance.choice(ZONES),)),))
        return chance.choice(([], [], [], [host], [host], [zone], [host, zone]))

    def _class(self, number: int, chance: random.Random) -> tuple[str, Message]:
        """A class comes, changes or goes; the last one of the table is never there."""
        name = _CLASSES[number % (len(_CLASSES) - 1)]
        if name in self.storage and chance.random() < 0.15:
            return self._tell_class(StorageSeen(name, gone=True))
        has_capacity = name == "capped"
        zones = [Term((Expression("zone", "In", (chance.choice(ZONES),)),))]
        parts = [
            StorageCapacity(
                chance.choice((having(zone=chance.choice(ZONES)), LabelSelector(), None)),
                chance.choice(_SIZES),
                chance.choice((0, 0, 3)),
            )
            for _ in range(chance.randint(0, 2) if has_capacity else 0)
        ]
        return self._tell_class(
            StorageSeen(
                name,
                provisioner=NO_PROVISIONER if name == "local" else chance.choice(DRIVERS),
                waits=name != "now",
                topologies=zones if chance.random() < 0.2 else [],
                has_capacity=has_capacity,
                capacities=parts,
            )
        )

    def _tell_claim(self, claim: ClaimSeen) -> tuple[str, Message]:
        name = ClaimName(claim.namespace, claim.name)
        self.claims[name] = claim
        if claim.gone:
            del self.claims[name]
        return f"claim.{claim.namespace}.{claim.name}", claim

    def _tell_volume(self, volume: VolumeSeen) -> tuple[str, Message]:
        self.volumes[volume.name] = volume
        if volume.gone:
            del self.volumes[volume.name]
        return f"volume.{volume.name}", volume

    def _tell_class(self, storage: StorageSeen) -> tuple[str, Message]:
        self.storage[storage.name] = storage
        if storage.gone:
            del self.storage[storage.name]
        return f"storage.{storage.name}", storage
