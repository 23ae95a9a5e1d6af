"""Conditions of nodes: their health with its reasons, which the columns of the state do not keep."""

from collections.abc import Iterable
from typing import Final

from berth.core.cluster.node_facts import check_health
from berth.core.cluster.node_packing import unpack_health
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition

_NONE: Final[dict[str, NodeCondition]] = {}


class Conditions:
    """Conditions of nodes that are not healthy, from the newest health fact of each domain."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, NodeCondition]] = {}

    def of(self, domain: str, name: str) -> NodeCondition | None:
        """Condition of a node; None for a healthy one."""
        return self._known.get(domain, _NONE).get(name)

    def note(self, data: bytes) -> Iterable[str]:
        """Note a fact of any kind; returns the nodes whose condition may have changed."""
        try:
            envelope = open_envelope(data)
            if envelope.kind != HealthSeen.KIND:
                return ()
            fact = body_of(envelope, HealthSeen)
            check_health(fact)
            conditions = unpack_health(fact)
        except (DecodeError, ValueError, IndexError):
            return ()
        now = {one.name: one for one in conditions if _is_notable(one)}
        before = self._known.pop(fact.domain, _NONE)
        if now:
            self._known[fact.domain] = now
        return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _is_notable(one: NodeCondition) -> bool:
    masks = one.unhealthy | one.recovering | one.network_unhealthy | one.sub_healthy | one.withheld
    return bool(masks) or one.level is not NodeHealth.OK
