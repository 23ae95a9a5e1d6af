"""What a queue of Volcano has, in the form of its status.

Source: Volcano, scheduling/v1beta1, QueueStatus.
"""

from collections.abc import Mapping
from typing import Final

from berth.schemas.queues.queue import CHIP, CPU, MEMORY

_THOUSANDTHS: Final = 1_000
_UNITS: Final = ((1 << 20, "Ti"), (1 << 10, "Gi"), (1, "Mi"))


def allocated(amounts: Mapping[str, int], pods: int) -> dict[str, str]:
    """``status.allocated``: cpu and memory always, as Volcano has them, and of the rest what is not zero.

    Args:
        amounts: What the queue and those below have.
        pods: Their pods.
    """
    found = {CPU: _parts(amounts.get(CPU, 0)), MEMORY: _memory(amounts.get(MEMORY, 0))}
    for resource in sorted(amounts):
        if resource not in found and amounts[resource]:
            found[resource] = _parts(amounts[resource] * (_THOUSANDTHS // CHIP))
    return found | ({"pods": str(pods)} if pods else {})


def allocated_patch(before: object, wanted: Mapping[str, str]) -> dict[str, str | None] | None:
    """Merge patch of ``status.allocated`` to what is wanted; None if it is there.

    Args:
        before: What is there, of any form: anybody may write it.
        wanted: What is wanted.
    """
    found = before if isinstance(before, dict) else {}
    if {key: str(value) for key, value in found.items()} == wanted:
        return None
    return dict.fromkeys(sorted(key for key in found if key not in wanted)) | dict(wanted)


def _parts(thousandths: int) -> str:
    whole, rest = divmod(thousandths, _THOUSANDTHS)
    return f"{thousandths}m" if rest else str(whole)


def _memory(mib: int) -> str:
    return next((f"{mib // size}{unit}" for size, unit in _UNITS if mib and mib % size == 0), "0")
