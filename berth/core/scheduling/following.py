"""Following: a scheduler keeps step with the records of another leader, so that it could decide the next round itself.

Waiting gangs sleep and wake as they do for that leader: a turn is opened for each round at its moment, and ends with
the record instead of a decision. What a replay compares is thereby the state of a standby.
"""

from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.ledger import Folded
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round


def follow_record(scheduler: Scheduler, sequence: int, data: bytes) -> Folded:
    """Fold a record that was not decided here, and bring the queue in line with it.

    Args:
        scheduler: Its state has applied the facts that the record knew, and no later ones.
        sequence: Sequence of the record.
        data: The record.

    Returns:
        What it changed; the scheduler has it already.

    Raises:
        HistoryError: Records are missing before it.
        NewerVersionError: Only a newer release reads it.
        DecodeError: It does not decode.
        InvariantError: It breaks a rule of the ledger.
    """
    state = scheduler.state
    envelope = open_envelope(data)
    opening = None
    if envelope.kind == Round.KIND:
        record = body_of(envelope, Round)
        if record.epoch == state.fold.epoch and record.base_seq == sequence - 1 == state.fold.head:
            opening = scheduler.open(record.at_ms).opening
        folded = state.apply_round(sequence, record)
    else:
        folded = state.apply_record(sequence, data)
    if folded.epoch:
        scheduler.begin(folded.changes, resumes=folded.resumes)
    elif folded.void:
        scheduler.note(folded.changes)
    else:
        scheduler.follow(folded, opening)
    return folded
