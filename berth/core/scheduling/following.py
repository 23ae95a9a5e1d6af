"""Following: a scheduler keeps step with the records of another leader, so that it could decide the next round itself.

Waiting gangs sleep and wake as they do for that leader: a turn is opened for each round at its moment, and ends with
the record instead of a decision. What a replay compares is thereby the state of a standby.
"""

from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.ledger import Folded
from berth.schemas.chain import Link


def follow_record(scheduler: Scheduler, link: Link) -> Folded:
    """Fold a record that was not decided here, and bring the queue in line with it.

    Args:
        scheduler: Its state has applied the facts that the record knew, and no later ones.
        link: The record, as ``scheduler.state.fold.link`` gave it.

    Returns:
        What it changed; the scheduler has it already.

    Raises:
        LedgerBrokenError: It breaks a rule of the ledger, or does not decode.
    """
    state = scheduler.state
    record = state.fold.round_of(link)
    opening = scheduler.open(record.at_ms).opening if record is not None else None
    folded = state.apply_link(link, record)
    if folded.epoch:
        scheduler.begin(folded.changes, resumes=folded.resumes)
    elif folded.void:
        scheduler.note(folded.changes)
    else:
        scheduler.follow(folded, opening)
    return folded
