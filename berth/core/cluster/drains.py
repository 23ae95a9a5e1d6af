"""Drains: from when on nodes take no new work, because a person asked for it."""

from typing import Final

from berth.schemas.envelope import DecodeError
from berth.schemas.fault_facts import REASON_MAX, DrainKind, DrainSeen

Target = tuple[DrainKind, str]
"""What is drained: a node, leaf switch or SuperPoD, by name."""
_LATEST_MS: Final = (1 << 53) - 1
"""Last moment that every reader of JSON can store."""


def check_drain(fact: DrainSeen) -> None:
    """Check the fields of a fact.

    Raises:
        DecodeError: It names nothing, has no moment or one that is too late, or a negative grace period or one that is
            too long, or its reason is too long.
    """
    if not fact.name:
        raise DecodeError("name: empty, expected the name of what is drained", kind=fact.KIND)
    if not fact.gone and not 0 < fact.since_ms <= _LATEST_MS:
        raise DecodeError(f"since_ms: {fact.since_ms}, expected 1 to {_LATEST_MS}", kind=fact.KIND)
    if not 0 <= fact.grace_ms <= _LATEST_MS:
        raise DecodeError(f"grace_ms: {fact.grace_ms}, expected 0 to {_LATEST_MS}", kind=fact.KIND)
    if len(fact.reason) > REASON_MAX:
        raise DecodeError(f"reason: {len(fact.reason)} characters, expected at most {REASON_MAX}", kind=fact.KIND)


class Drains:
    """Drains that were not withdrawn, by target."""

    def __init__(self) -> None:
        self.known: dict[Target, DrainSeen] = {}
        self.times: tuple[int, ...] = ()
        """Moments from which on something is drained, each once, ascending."""

    def __bool__(self) -> bool:
        return bool(self.known)

    def apply(self, fact: DrainSeen) -> None:
        """Take over a fact, which was checked."""
        if fact.gone:
            self.known.pop((fact.kind, fact.name), None)
        else:
            self.known[fact.kind, fact.name] = fact
        self.times = tuple(sorted({one.since_ms for one in self.known.values()}))

    def since_ms(self, node: str, leaf: str, superpod: str) -> int:
        """From when on a node is drained, by itself or by its place; 0 if it is not.

        Args:
            node: Its name.
            leaf: Its leaf switch; empty without.
            superpod: Its SuperPoD; empty without.
        """
        return min((one.since_ms for one in self.of(node, leaf, superpod)), default=0)

    def of(self, node: str, leaf: str, superpod: str) -> list[DrainSeen]:
        """Drains that concern a node, that of the node itself first; the arguments are those of :meth:`since_ms`."""
        targets: tuple[Target, ...] = (("node", node), ("leaf", leaf), ("superpod", superpod))
        return [self.known[target] for target in targets if target in self.known]
