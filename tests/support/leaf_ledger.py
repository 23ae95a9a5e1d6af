"""A ledger and facts of leaf switches, written by a test in the dispatcher's and the inventory's place."""

from collections.abc import Mapping, Sequence

from berth.core.cluster.node_packing import SWITCHES
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.runtime.bus.port import Bus
from berth.schemas.columns import pack
from berth.schemas.envelope import encode
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.subjects import StreamName
from tests.support.chained_records import append

RESOURCE = "huawei.com/Ascend910"


def leaf(name: str, nodes: Mapping[str, str]) -> Leaf:
    """A leaf with nodes by address; a node without a name is not known."""
    return Leaf(name, name, list(nodes.values()), list(range(len(nodes))), list(nodes))


def switch_placement(ranks: Sequence[tuple[str, str, int]], *, chips: int = 1) -> Placement:
    """Placement of a foundation-model job under policy 2.0: node, leaf and state byte of each rank.

    Args:
        ranks: They take the lowest chips of their nodes; no two have one node.
        chips: Chips of each rank.
    """
    leaves = list(dict.fromkeys(name for _, name, _ in ranks))
    part = SwitchPlacement(
        tor_affinity="large-model-schema",
        pods=len(ranks),
        policy="2.0",
        rule="drained-and-shared",
        leaves=leaves,
        leaf_index=pack([leaves.index(name) + 1 for _, name, _ in ranks], 2),
        states=bytes(state for _, _, state in ranks),
        annotated=True,
    )
    picked = [tuple(range(chips))] * len(ranks)
    return placement_of(
        [node for node, _, _ in ranks], picked, [Run(len(ranks), chips)], resource=RESOURCE, groups=[part.groups]
    )


class LeafLedger:
    """Writes records and facts.

    Args:
        bus: The cell.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._epoch = 0

    async def topology(self, *leaves: Leaf, level: str = "double_layer") -> None:
        """Say which leaves there are; none: unknown."""
        fact = TopologySeen(SWITCHES, list(leaves), level=level)
        await self._bus.publish(self._bus.subjects.fact_topology(SWITCHES), encode(fact))

    async def epoch(self, nslb_version: str = "2.0", *, reference_parity: bool = False) -> None:
        """Begin a reign under a policy."""
        self._epoch += 1
        settings = Settings(nslb_version=nslb_version, reference_parity=reference_parity)
        await self._append(Epoch(self._epoch, await self._head(), 0, 0, "test", settings))

    async def place(self, namespace: str, name: str, uid: str, placement: Placement, *, attempt: int = 1) -> int:
        """Place a job; returns the record's sequence."""
        return await self._round(verdicts=[Verdict(namespace, name, uid, attempt, placement)])

    async def release(self, uid: str, *, attempt: int = 1) -> int:
        """Give a job's chips back; returns the record's sequence."""
        return await self._round(releases=[Release(uid, attempt, "succeeded")])

    async def _round(self, **parts: object) -> int:
        head = await self._head()
        return await self._append(Round(self._epoch, head, 0, 0, head, **parts))  # type: ignore[arg-type]  # its fields

    async def _head(self) -> int:
        return (await self._bus.state(StreamName.LEDGER)).last_seq

    async def _append(self, record: Epoch | Round) -> int:
        return await append(self._bus, record)
