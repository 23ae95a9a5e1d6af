"""What a bound pod says of its place: job, attempt and rank by which Berth bound it, and its chips."""

from typing import Final, NamedTuple

import msgspec

from berth.formats.ascend.device_list import ASCEND_REAL, CHIPS_MAX, chip_mask, resource_of
from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB, JOB_UID, RANK
from berth.formats.kubernetes.lean import Meta

RANK_MAX: Final = (1 << 31) - 1
_QUOTED_MAX: Final = 80


class RankIdentity(NamedTuple):
    """Job, attempt and rank of a bound pod, from its annotations."""

    job: str
    uid: str
    attempt: int
    rank: int


def counted(meta: Meta, proofs: MarkProofs) -> Meta:
    """Metadata of a bound pod without marks that nothing proves; the same object if all count."""
    before = meta.annotations or {}
    after = proofs.counted(meta.uid, before)
    return meta if after is before else msgspec.structs.replace(meta, annotations=after)


def identity_of(meta: Meta, wrong: list[str]) -> RankIdentity | None:
    """Placement of a pod that Berth bound; None for any other pod, and for annotations that name no placement.

    Args:
        meta: Its metadata.
        wrong: Receives errors.
    """
    job, uid = meta.annotation(JOB), meta.annotation(JOB_UID)
    if not job and not uid:
        return None
    before = len(wrong)
    numbers: list[int] = []
    for key, least in ((ATTEMPT, 1), (RANK, 0)):
        number = number_in(meta.annotation(key), least)
        if number is not None:
            numbers.append(number)
        else:
            wrong.append(f"annotation {key} is {quoted(meta.annotation(key))}: expected a whole number from {least}")
    if not job or not uid:
        wrong.append(f"annotations {JOB} and {JOB_UID} are {quoted(job)} and {quoted(uid)}: expected both")
    return None if len(wrong) > before else RankIdentity(job, uid, numbers[0], numbers[1])


def number_in(text: str, least: int) -> int | None:
    """A whole number from ``least`` to :data:`RANK_MAX`; None for any other text."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(RANK_MAX))
    return int(text) if is_number and least <= int(text) <= RANK_MAX else None


def other_number(named: int, asked: int) -> str:
    """That the annotations of a pod name another number of chips than it asks for.

    Args:
        named: Number of chips that they name.
        asked: Number that it asks for.
    """
    return f"its annotations name {named} chips: expected the {asked} that it asks for"


def named_chips(meta: Meta, asked: str, wrong: list[str]) -> tuple[str, int]:
    """Resource and bitmap of the chips that annotations name.

    They are in ``huawei.com/AscendReal``, or in the annotation with the resource's name where that is absent or
    empty. The latter may hold device ids.

    Source: docs/reference/nodes-and-chips.md, "Free list" and "Pod annotations of chips".

    Args:
        meta: Metadata of the pod.
        asked: Resource that it requests; empty for none.
        wrong: Receives errors.
    """
    key = ASCEND_REAL if meta.annotation(ASCEND_REAL) else asked
    text = meta.annotation(key) if key else ""
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    if not names:
        return asked, 0
    if len(names) > CHIPS_MAX:
        wrong.append(f"annotation {key} is {quoted(text)}: expected at most {CHIPS_MAX} chips, it has {len(names)}")
        return asked, 0
    resource = asked or resource_of(names[0])
    mask = 0
    for name in names:
        if name.count("-") > 1:  # a virtual chip: its node counts as one without chips
            continue
        try:
            chip = chip_mask(name)
        except ValueError:
            chip = 0
        if not chip or resource_of(name) != resource or mask & chip:
            wrong.append(f"annotation {key} names {quoted(name)}: expected chips of {resource}, each once")
        else:
            mask |= chip
    return resource, mask


def quoted(text: str) -> str:
    """A text as an error shows it, cut."""
    return repr(text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…")
