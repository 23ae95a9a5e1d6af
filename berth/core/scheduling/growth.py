"""Growth: gangs that gave up ranks for others get them back once no work before them waits for room.

In a round each is tried behind the gangs that are before it in the queue, and before the others.
"""

from collections.abc import Collection, Iterable, Sequence

from berth.core.faults.examination import Faulty
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.wake_rules import FOR_ROOM
from berth.core.state.ledger import LedgerFold
from berth.schemas.ledger import Verdict


def may_grow(
    fold: LedgerFold,
    queue: Queue,
    growing: Iterable[Faulty],
    verdicts: Iterable[Verdict] = (),
    tried: Collection[str] = (),
) -> list[Faulty]:
    """Gangs that get ranks back before all that wait for room, or were not tried yet.

    Args:
        fold: The ledger before the round.
        queue: Gangs that wait.
        growing: Gangs that gave up ranks, in their order.
        verdicts: What the round decided on gangs of the queue.
        tried: Gangs (uid) that the round tries first.
    """
    found = list(growing)
    news = {one.uid: one for one in verdicts} if found else {}
    orders = []
    for gang in queue.gangs() if found else ():
        verdict, record = news.get(gang.uid), fold.gangs.get(gang.uid)
        refusal = verdict.refusal if verdict is not None else record.refusal if record is not None else None
        is_placed = verdict is not None and verdict.placement is not None
        lacks_room = refusal is None or (refusal.code in FOR_ROOM and not refusal.rule)
        if lacks_room and not (is_placed or gang.is_plain or gang.uid in tried):
            orders.append(gang.order)
    first = min(orders, default=None)
    return [one for one in found if first is None or one.gang.order < first]


def apart(faulty: Iterable[Faulty]) -> tuple[list[Faulty], list[Faulty]]:
    """Gangs of which something is faulty, and those that only grow."""
    found: Sequence[list[Faulty]] = ([], [])
    for one in faulty:
        found[one.grows].append(one)
    return found[0], found[1]
