"""New names of anonymous recordings: in the order of the old ones, and with what decisions read in a name."""

import re
import zlib
from collections.abc import Collection, Iterable
from typing import Final

from berth.formats.recordings.anonymisation_rules import KEPT_QUEUES, KEPT_TASKS, LINKED, Kind

_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBERED: Final = frozenset({Kind.GROUP, Kind.RACK})
"""Kinds that may be numbers. Numbers stay, because they are ordered as numbers."""
_TRIES_MAX: Final = 1 << 20


def new_names(kind: Kind, names: Collection[str], shards: Iterable[int]) -> dict[str, str]:
    """Replacements of names of one kind.

    Args:
        kind: The kind.
        names: The names, none of which stays.
        shards: Numbers of shards that domains must keep.

    Raises:
        ValueError: No name is found for a domain that keeps its shards.
    """
    width = len(str(len(names)))
    new = {name: f"{kind.value}-{number:0{width}}" for number, name in enumerate(sorted(names), 1)}
    if kind is Kind.QUEUE:
        return {name: f"{_beside_kept(name)}{made}" for name, made in new.items()}
    if kind is Kind.DOMAIN:
        counts = sorted(count for count in shards if count > 1)
        return {name: _in_shard(f"{_place_of(name)}{made}", name, counts) for name, made in new.items()}
    return new


def stays(kind: Kind, name: str) -> bool:
    """Whether a name has a meaning, and stays in an anonymous recording."""
    if kind is Kind.KEEP or not name:
        return True
    if kind in {Kind.TASK, Kind.QUEUE}:
        return name in (KEPT_TASKS if kind is Kind.TASK else KEPT_QUEUES)
    return kind in _NUMBERED and _NUMBER.fullmatch(name) is not None


def _beside_kept(queue: str) -> str:
    """Prefix of the new name of a queue: so the new names have the order of the old ones, those that stay included."""
    first, last = KEPT_QUEUES
    return "a-" if queue < first else "" if queue < last else "z-"


def _place_of(domain: str) -> str:
    """Prefix of the new name of a domain: decisions depend on whether it is a SuperPoD or below a leaf switch.

    With it the new names have the order of the old ones.
    """
    linked = next((prefix for prefix in LINKED if domain.startswith(prefix)), "")
    if linked:
        return linked
    first, last = LINKED
    return "" if domain < first else "other-" if domain < last else "zone-"


def _in_shard(made: str, name: str, shards: Iterable[int]) -> str:
    """``made`` with a suffix that puts it into the shard of ``name``, for each of the numbers of shards.

    Raises:
        ValueError: None of a million suffixes does.
    """
    wanted = [(count, zlib.crc32(name.encode()) % count) for count in shards]
    for ending in range(_TRIES_MAX):
        domain = f"{made}-{ending}" if wanted else made
        mark = zlib.crc32(domain.encode())
        if all(mark % count == shard for count, shard in wanted):
            return domain
    raise ValueError(
        f"no name found for a domain that keeps its shard of {', '.join(str(count) for count, _ in wanted)}"
    )
