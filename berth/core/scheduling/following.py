"""Following: a scheduler keeps step with the records of another leader, so that it could decide the next round itself.

Waiting gangs sleep and wake as they do for that leader: a turn is opened for each round at its moment, and ends with
the record instead of a decision. What a replay compares is thereby the state of a standby.
"""

from berth.core.scheduling.heavy_gangs import late_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Opening
from berth.core.state.ledger import Folded
from berth.schemas.chain import Link
from berth.schemas.ledger import Round


def opening_for(scheduler: Scheduler, record: Round) -> Opening | None:
    """Open a turn as the leader did that decided a round; None if there is nothing to decide.

    Args:
        scheduler: It has followed all records before.
        record: The round.
    """
    opening = scheduler.open(record.at_ms, work_max=record.work_max).opening
    late = late_of(record)
    return scheduler.leave_out(opening, late) if opening is not None and late else opening


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
    opening = opening_for(scheduler, record) if record is not None else None
    folded = state.apply_link(link, record)
    if folded.epoch:
        scheduler.begin(folded.changes, resumes=folded.resumes)
    elif folded.void:
        scheduler.note(folded.changes)
    else:
        scheduler.follow(folded, opening)
    return folded
