"""Why a job waits, in some words: what a line of a list has room for, and which jobs wait for the same."""

import re
from collections.abc import Sequence
from typing import Final

from berth.core.text import cause_of, span
from berth.products.catalogue import FORMS
from berth.schemas.status import JobStatus

_ROOM: Final = re.compile(
    r"(?:[\d,]+ of [\d,]+ pods? finds? room, and )?(?P<fit>[\d,]+) of (?P<total>[\d,]+) nodes? fits?"
)
"""The begin of a sentence about nodes (``berth.core.explain.refusal_text.room_words``)."""


def short_reason(alike: Sequence[JobStatus]) -> str:
    """Why jobs wait, the most important first: ``10 of 48 A2 nodes free, needs 16: 38 have ...``.

    Args:
        alike: Jobs with one :func:`reason_key`; what cannot be said of all is said of the first.
    """
    first = alike[0]
    room = _room(first)
    refusals = [one.refusal for one in alike if one.refusal is not None]
    if room is None or not refusals:
        return first.sentence
    form = FORMS.get(refusals[0].form)
    nodes = f"{room['total']} {form.title.partition(',')[0]} nodes" if form is not None else f"{room['total']} nodes"
    rest = first.sentence[room.end() :]
    need = span([one.pods_need for one in refusals])
    if all(one.pods_have == one.nodes_fit for one in refusals):
        return f"{room['fit']} of {nodes} free, needs {need}{rest}"
    have = span([one.pods_have for one in refusals])
    return f"room for {have} of {need} pods, {room['fit']} of {nodes} fit{rest}"


def reason_key(status: JobStatus) -> tuple[object, ...]:
    """Equal for jobs that wait for the same, whatever their sizes: for the same nodes, or for the same cause."""
    refusal, room = status.refusal, _room(status)
    if refusal is None:
        return (status.sentence,)
    if room is not None:
        return (refusal.code, refusal.form, room["fit"], room["total"], status.sentence[room.end() :])
    return (refusal.code, refusal.ahead, cause_of(status.sentence))


def _room(status: JobStatus) -> re.Match[str] | None:
    return _ROOM.match(status.sentence)
