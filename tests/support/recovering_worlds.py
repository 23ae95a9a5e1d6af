"""Cells in which gangs that run break and recover, on real dispatchers and scorers: steps as data."""

import random
from typing import Final

import msgspec

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_switches
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.support.cells import Cell, a_job, a_node
from tests.support.honest_components import told_of

VERBS: Final = ("submit",) * 4 + ("chip", "evict", "gone") + ("back",) * 2 + ("follow",) * 6 + ("time",) * 3
_LABELS: Final[tuple[dict[str, str], ...]] = (
    {"fault-scheduling": "grace", "pod-rescheduling": "on"},
    {"fault-scheduling": "force", "pod-rescheduling": "on", "fault-retry-times": "2"},
    {"fault-scheduling": "grace", "process-recover-enable": "on"},
    {"fault-scheduling": "force"},
)
_POLICIES: Final = {"superpod910a3x16": "chip2-node16-sp", "superpod950x8": "chip8-node8-ra64-sp"}
_PAUSES_S: Final = (0.05, 1.5, 4.0, 13.0)


class RecoveringWorld:
    """What happens in a cell, and what was said of its nodes.

    Args:
        cell: The cell; faults are handled in it.
        product: Of its nodes: ``module910bx8``, below leaf switches, ``superpod910a3x16`` or ``superpod950x8``.
    """

    FAULTS: Final = Settings()

    def __init__(self, cell: Cell, product: str = "module910bx8") -> None:
        self.cell = cell
        self._product = product
        in_superpod = product.startswith("superpod")
        self._all = [
            a_node(
                f"n{number:02}",
                product,
                superpod=str(number // 8) if in_superpod else "",
                rack=str(number // 4) if in_superpod else "",
                leaf="" if in_superpod else f"leaf{number % 3}",
                position=number // 3,
            )
            for number in range(16)
        ]
        self._there: dict[str, NodeDescription] = {node.name: node for node in self._all}
        self._ill: dict[str, NodeCondition] = {}

    async def begin(self) -> None:
        """All nodes come, with the leaf switches above them."""
        await self.cell.nodes(self._all)
        await self.cell.user.publish(f"berth.{self.cell.cell}.fact.topology.switch", encode(pack_switches(self._all)))

    async def act(self, verb: str, one: int, two: int) -> None:
        """Let something happen; the numbers say to whom, and how."""
        chance = random.Random(two)  # noqa: S311  # the same for the same step
        holdings = self.cell.dispatcher.state.fold.holdings
        keys = sorted(holdings)
        holding = holdings[keys[one % len(keys)]] if keys else None
        match verb:
            case "submit":
                await self._submit(one, two, chance)
            case "follow" if holding is not None:
                now_ms = self.cell.clock.now_ms()
                for end, fact in told_of(holding, self.cell.dispatcher.state, now_ms, chance):
                    await self.cell.user.publish(f"berth.{self.cell.cell}.fact.{end}", encode(fact))
            case "time":
                self.cell.clock.advance(_PAUSES_S[two % len(_PAUSES_S)])
            case "back":
                await self._bring_back(chance)
            case "chip" | "evict" | "gone" if holding is not None:
                names = holding.placement.names()
                await self._break(verb, names[two % len(names)], two)
            case _:
                pass

    async def _submit(self, one: int, two: int, chance: random.Random) -> None:
        name = f"j{one % 8}"
        if ("default", name) in self.cell.dispatcher.state.jobs:
            return
        request = self._request(name, two, chance)
        labels = chance.choice(_LABELS)
        group = GroupSeen("default", f"pg-{name}", labels=labels, jobs=[name], at_ms=self.cell.clock.now_ms())
        await self.cell.user.publish(f"berth.{self.cell.cell}.fact.group.default.pg-{name}", encode(group))
        await self.cell.submit(request)

    def _request(self, name: str, two: int, chance: random.Random) -> JobRequest:
        if self._product.startswith("superpod"):
            chips = self._all[0].chips.bit_count()
            request = a_job(name, product=self._product, chips=chips, replicas=(2, 4)[two % 2])
            blocks = {"huawei.com/schedule_policy": _POLICIES[self._product], "sp-block": str(2 * chips)}
            return msgspec.structs.replace(request, annotations=request.annotations | blocks)
        request = a_job(name, product=self._product, chips=(8, 8, 4)[two % 3], replicas=1 + two % 4)
        if two % 2 and request.tasks[0].chips == 8:
            labels = {**request.labels, "tor-affinity": chance.choice(("normal-schema", "large-model-schema"))}
            return msgspec.structs.replace(request, labels=labels)
        return request

    async def _break(self, verb: str, name: str, two: int) -> None:
        if verb == "gone":
            self._there.pop(name, None)
            await self.cell.nodes(list(self._there.values()))
            return
        level = NodeHealth.EVICT if verb == "evict" else NodeHealth.OK
        self._ill[name] = NodeCondition(name, unhealthy=0 if verb == "evict" else 1 << two % 8, level=level)
        await self._tell()

    async def _bring_back(self, chance: random.Random) -> None:
        away = [node for node in self._all if node.name not in self._there]
        if away:
            node = chance.choice(away)
            self._there[node.name] = node
            await self.cell.nodes([self._there[name] for name in sorted(self._there)])
        if self._ill:
            del self._ill[chance.choice(sorted(self._ill))]
            await self._tell()

    async def _tell(self) -> None:
        for domain, names in domains(self._all).items():
            await self.cell.health(domain, [self._ill[name] for name in names if name in self._ill])
