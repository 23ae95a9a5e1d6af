"""Checks of facts that end the application of a fact before anything of it counts."""

from itertools import pairwise
from typing import Final

from berth.schemas.columns import unpack, unpack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import PodsSeen
from berth.schemas.fault_facts import REASON_MAX, ApprovalSeen, GroupSeen, ReplacementsSeen
from berth.schemas.intake import PRIORITY_MAX
from berth.schemas.queues.queue import AMOUNT_MAX
from berth.schemas.subjects import token

_INDEX_BYTES: Final = 4
_TIME_BYTES: Final = 8
_MASK_BYTES: Final = 8
RESOURCES_MAX: Final = 16
"""Most resources that the minimum of a PodGroup may ask for."""


def check_subject(subject: str, kind: str, *names: str) -> None:
    """Check that a fact is stored on the subject of the thing that it names.

    The latest message of a subject must be the latest of that thing.

    Raises:
        DecodeError: It is stored on another subject.
    """
    if not subject.endswith(f".fact.{kind}.{'.'.join(map(token, names))}"):
        raise DecodeError(f"speaks of {'/'.join(names)} on the subject {subject}", kind=f"fact.{kind}")


def check_approval(fact: ApprovalSeen) -> None:
    """Check that a fact names what is approved, and until when.

    Raises:
        DecodeError: It does not, or its reason is too long.
    """
    if not fact.kind:
        raise DecodeError("kind: empty, expected the kind of the faults", kind=fact.KIND)
    if not fact.gone and fact.until_ms <= 0:
        raise DecodeError(f"until_ms: {fact.until_ms}, expected a moment above 0", kind=fact.KIND)
    if len(fact.reason) > REASON_MAX:
        raise DecodeError(f"reason: {len(fact.reason)} characters, expected at most {REASON_MAX}", kind=fact.KIND)


def check_group(fact: GroupSeen) -> None:
    """Check that what a PodGroup asks for can be meant.

    Raises:
        DecodeError: A number is out of its bounds, or it asks for too many resources.
    """
    waiting = fact.waiting
    if waiting is None:
        return
    if not fact.uid:
        raise DecodeError("uid: empty, expected that of the PodGroup", kind=fact.KIND)
    if len(waiting.minimum) > RESOURCES_MAX:
        raise DecodeError(
            f"waiting.minimum: {len(waiting.minimum)} resources, expected at most {RESOURCES_MAX}", kind=fact.KIND
        )
    bounds = {f"minimum.{name}": (amount, 0, AMOUNT_MAX) for name, amount in waiting.minimum.items()}
    bounds["pods"] = (waiting.pods, 0, AMOUNT_MAX)
    bounds["priority"] = (waiting.priority, -PRIORITY_MAX, PRIORITY_MAX)
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise DecodeError(f"waiting.{name}: {value}, expected {least} to {most}", kind=fact.KIND)


def check_pods(fact: PodsSeen) -> None:
    """Check that the columns of a fact of pods belong together.

    Raises:
        DecodeError: The columns do not belong together.
    """
    rows = len(fact.phase)
    kind = PodsSeen.KIND
    if (
        len(fact.rank) != _INDEX_BYTES * rows
        or len(fact.node_index) != _INDEX_BYTES * rows
        or len(fact.chips) != _MASK_BYTES * rows
        or len(fact.leaf_states) not in {0, rows}
        or len(fact.rejections) not in {0, rows}
    ):
        raise DecodeError(f"columns do not have {rows} rows each", kind=kind)
    if len(fact.blocks) not in {0, 2 * rows}:
        raise DecodeError(f"blocks: {len(fact.blocks)} bytes, expected {2 * rows} or none", kind=kind)
    for name, column in (("exit_codes", fact.exit_codes), ("steps", fact.steps)):
        if len(column) not in {0, _INDEX_BYTES * rows}:
            raise DecodeError(f"{name}: {len(column)} bytes, expected {_INDEX_BYTES * rows} or none", kind=kind)
    if fact.foreign and unpack(fact.rank, _INDEX_BYTES) != list(range(rows)):
        raise DecodeError(f"rank: of pods of another scheduler, expected 0 to {rows - 1} in order", kind=kind)
    if fact.cpu_milli < 0 or fact.memory_mib < 0:
        raise DecodeError("cpu_milli, memory_mib: less than nothing", kind=kind)
    try:
        nodes = len(unpack_names(fact.nodes))
    except ValueError as error:
        raise DecodeError(f"nodes: {error}", kind=kind) from error
    worst = max(unpack(fact.node_index, 4), default=-1)
    if worst >= nodes:
        raise DecodeError(f"node_index: {worst} is outside its table of {nodes} names", kind=kind)


def check_replacements(fact: ReplacementsSeen) -> None:
    """Check that the ranks of new pods are whole numbers, ascending, and each has a time if one has.

    Raises:
        DecodeError: The ranks are not ascending, or a time is missing.
    """
    kind = ReplacementsSeen.KIND
    if len(fact.ranks) % _INDEX_BYTES:
        raise DecodeError(f"ranks: {len(fact.ranks)} bytes are no whole number of ranks, 4 bytes each", kind=kind)
    ranks = unpack(fact.ranks, _INDEX_BYTES)
    if any(a >= b for a, b in pairwise(ranks)):
        raise DecodeError("ranks: expected each once, ascending", kind=kind)
    if fact.since_ms and len(fact.since_ms) != len(ranks) * _TIME_BYTES:
        raise DecodeError(
            f"since_ms: {len(fact.since_ms)} bytes for {len(ranks)} ranks: expected 8 bytes each, or none", kind=kind
        )
    if any(a.rank >= b.rank for a, b in pairwise(fact.backups)) or any(one.rank < 0 for one in fact.backups):
        raise DecodeError("backups: expected each rank once, ascending", kind=kind)
