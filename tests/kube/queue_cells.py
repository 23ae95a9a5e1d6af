"""Cells whose queues are Queues of Volcano on an API server."""

from collections.abc import Mapping
from typing import Final

from tests.kube.test_contract_details import GANGS, QUEUES
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf

CHIPS: Final = "huawei.com/Ascend910"
_TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: %d, name: "a2-{index}"}
"""


def queued_cell(target_of: TargetOf, *, nodes: int, level: int = 2) -> InvalidInputCell:
    """A cell of nodes with 8 chips.

    Args:
        target_of: Makes cells.
        nodes: How many nodes.
        level: What queues do: the setting ``decisions.queues``.
    """
    settings: Mapping[str, Mapping[str, object]] = {
        "inventory": {"gangs": GANGS, "queues": True},
        "dispatcher": {"decisions": {"queues": level}},
    }
    return target_of(_TOPOLOGY % nodes, settings)


async def declare(target: InvalidInputCell, name: str, **spec: object) -> None:
    """Make a Queue."""
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    await target.api.post(QUEUES, body | {"spec": spec})
