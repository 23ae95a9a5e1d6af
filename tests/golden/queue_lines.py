"""Queues of lines as those of production: chips are hundredths here, and whole ones in lines."""

from collections.abc import Mapping
from typing import Any

from berth.core.queues.amounts import unit_of
from berth.schemas.queues.queue import Amounts, Queue


def amounts_of(given: Mapping[str, int] | None) -> Amounts:
    """Amounts of a line."""
    return {dimension: amount * unit_of(dimension) for dimension, amount in (given or {}).items()}


def whole(amounts: Mapping[str, int]) -> Amounts:
    """Amounts as a line has them."""
    return {dimension: amount // unit_of(dimension) for dimension, amount in amounts.items()}


def queue_of(given: Mapping[str, Any]) -> Queue:
    """A queue of a line."""
    return Queue(
        given["name"],
        parent=given["parent"],
        capability=amounts_of(given["capability"]),
        guarantee=amounts_of(given["guarantee"]),
        deserved=amounts_of(given["deserved"]),
        weight=given["weight"],
        priority=given["priority"],
        reclaimable=given["reclaimable"],
        state=given["state"],
        created=given["created"],
    )
