"""A cell of the Atlas 990 of ``docs/extending.md``: nodes from Kubernetes, jobs, and what the ledger says of them.

For a process of its own whose tree has the entry of that page; it prints what happened as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

import berth
from berth.core.chips.form_selection import choose_form
from berth.core.explain.refusal_text import sentence
from berth.core.topologies.switches.support import unsupported
from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import Node
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round, Verdict
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.refusal import Refusal
from tests.support.cells import Cell, a_job

_PRODUCT = "module990x12"
_CHIPS = 12
_THREE_PER_RING = 0b0001_0001_0001
"""Chips that are unhealthy, so that three are left in each ring."""


def a_kubernetes_node(name: str) -> NodeDescription:
    """A node as the inventory reads it; nothing but labels and chips tells the product."""
    tree = {
        "metadata": {
            "name": name,
            "labels": {"accelerator-type": "module-990-12", "accelerator": "huawei-Ascend910"},
            "annotations": {"baseDeviceInfos": json.dumps({f"Ascend910-{chip}": {} for chip in range(_CHIPS)})},
        },
        "spec": {},
        "status": {
            "allocatable": {"huawei.com/Ascend910": str(_CHIPS), "cpu": "192", "memory": "1500000Mi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return read_node(msgspec.convert(tree, Node)).node


async def story() -> dict[str, object]:
    """What becomes of four jobs on two nodes, one of them with three healthy chips per ring."""
    nodes = [a_kubernetes_node(name) for name in ("n1", "n2")]
    cell = await Cell(queue_policy="skip").open()
    try:
        await cell.nodes(nodes)
        await cell.health("bucket-all", [NodeCondition("n1"), NodeCondition("n2", unhealthy=_THREE_PER_RING)])
        await cell.submit(
            a_job("whole", chips=_CHIPS, product=_PRODUCT, priority=3),
            a_job("pair", chips=2, product=_PRODUCT, priority=2),
            a_job("ring", chips=4, product=_PRODUCT, priority=1),
            a_job("eight", chips=8, product=_PRODUCT),
        )
        await cell.turns(2)
        verdicts = await verdicts_of(cell)
        rejected = await cell.status("eight")
    finally:
        await cell.close()
    chosen = choose_form(
        resource="huawei.com/npu", labels={}, annotations={"huawei.com/schedule_policy": "chip4-node12"}, selector={}
    )
    return {
        "tree": str(Path(berth.__file__).parents[1]),
        "products": [node.product for node in nodes],
        "placed": {
            name: [verdict.placement.names(), verdict.placement.chips_by_rank()]
            for name, verdict in verdicts.items()
            if verdict.placement is not None
        },
        "refused": {
            name: sentence(verdict.refusal) for name, verdict in verdicts.items() if verdict.refusal is not None
        },
        "forms": {name: verdict.refusal.form for name, verdict in verdicts.items() if verdict.refusal is not None},
        "rejected": rejected.sentence if rejected is not None else "",
        "by policy": "" if isinstance(chosen, Refusal) else chosen.form.name,
        "switch affinity": [
            unsupported("1.0", form="chip4-node12", framework="", shares_chips=False),
            unsupported("2.0", form="chip4-node12", framework="", shares_chips=False),
        ],
    }


async def verdicts_of(cell: Cell) -> dict[str, Verdict]:
    """Last verdict of each job in the ledger."""
    found: dict[str, Verdict] = {}
    for data in await cell.ledger():
        envelope = open_envelope(data)
        if envelope.kind == Round.KIND:
            found |= {verdict.name: verdict for verdict in body_of(envelope, Round).verdicts}
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(story())))
