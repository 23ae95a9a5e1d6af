"""Annotation ``berth/ledger``: the record of the ledger by which a pod was bound."""

from typing import NamedTuple

from berth.formats.whole_numbers import whole_number


class LedgerMark(NamedTuple):
    """A record of the ledger, as a pod names it.

    Attributes:
        stream: Id of the ledger's stream: when the server made it.
        epoch: Epoch of the record; of a record that the binder read in a snapshot, that of the snapshot.
        sequence: Sequence of the record.
    """

    stream: str
    epoch: int
    sequence: int


def ledger_mark(stream: str, epoch: int, sequence: int) -> str:
    """Value of the annotation; :func:`mark_of` is the inverse."""
    return f"{stream}/{epoch}/{sequence}"


def mark_of(text: str) -> LedgerMark | None:
    """The record that a pod names; None if the text has another form: people may write anything there."""
    before, _, last = text.rpartition("/")
    stream, _, first = before.rpartition("/")
    epoch, sequence = whole_number(first), whole_number(last)
    if not stream or epoch is None or sequence is None:
        return None
    return LedgerMark(stream, epoch, sequence)
