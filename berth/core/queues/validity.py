"""What is wrong with a queue itself: bounds of its numbers, and amounts that are none."""

from typing import Final

from berth.core.queues.amounts import in_order, is_chips, number_of
from berth.schemas.queues.queue import AMOUNT_MAX, CHIP, PRIORITY_MAX, STATES, WEIGHT_MAX, Queue

_AMOUNTS: Final = ("capability", "guarantee", "deserved", "per_namespace")


def faults_of(queue: Queue) -> list[str]:
    """What makes the queue not valid, each ``field: is VALUE, expected RIGHT``; empty for a valid one."""
    found = list(queue.wrong)
    if not 1 <= queue.weight <= WEIGHT_MAX:
        found.append(f"weight: is {queue.weight}, expected a whole number from 1 to {WEIGHT_MAX}")
    if not 0 <= queue.priority <= PRIORITY_MAX:
        found.append(f"priority: is {queue.priority}, expected a whole number from 0 to {PRIORITY_MAX}")
    if queue.state and queue.state not in STATES:
        found.append(f"state: is {queue.state!r}, expected one of {', '.join(STATES)}")
    for field in _AMOUNTS:
        amounts: dict[str, int] = getattr(queue, field)
        for dimension in in_order(amounts):
            fault = _fault_of(dimension, amounts[dimension])
            if fault:
                found.append(f"{field}[{dimension}]: is {fault}")
    return found


def warnings_of(queue: Queue) -> list[str]:
    """What of a valid queue is not as its author may expect, a sentence each."""
    found = list(queue.notes)
    if queue.deserved:
        for dimension in in_order(queue.guarantee):
            kept, deserved = queue.guarantee[dimension], queue.deserved.get(dimension, 0)
            if kept > deserved:
                found.append(
                    f"guarantee of {number_of(dimension, kept)} {dimension} is more than deserved"
                    f" ({number_of(dimension, deserved)}): it is what the queue is entitled to"
                )
    for dimension in in_order(queue.guarantee.keys() & queue.capability.keys()):
        kept, most = queue.guarantee[dimension], queue.capability[dimension]
        if kept > most:
            found.append(
                f"guarantee of {number_of(dimension, kept)} {dimension} is more than capability"
                f" ({number_of(dimension, most)}): the rest is kept free for nobody"
            )
    return found


def _fault_of(dimension: str, amount: int) -> str:
    if amount < 0:
        return f"{number_of(dimension, -amount)} below zero, expected an amount that is not negative"
    if amount > AMOUNT_MAX:
        return f"{amount}, expected at most {AMOUNT_MAX}"
    if is_chips(dimension) and amount % CHIP:
        return f"{number_of(dimension, amount)}, expected whole chips"
    return ""
