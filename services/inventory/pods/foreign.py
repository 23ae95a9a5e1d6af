"""Pods with chips that Berth did not place, as facts: one subject a pod. Pure."""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.schemas.facts import PodsSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.pods.facts import PodEntry, alike, pods_fact
from berth.services.inventory.pods.rows import Row

PREFIX: Final = "pod/"
REST_MS: Final = 600_000
"""How long the name of a pod that is gone stays with its uid: readers may not have let go of its chips yet."""


class Foreign:
    """Foreign pods, and what was said of them.

    Args:
        entry_of: What is told of a pod: its chips are those that its node has.
    """

    def __init__(self, entry_of: Callable[[Row], PodEntry]) -> None:
        self._entry_of = entry_of
        self._rows: dict[str, Row] = {}
        self._published: dict[str, PodsSeen] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._ended_pods: dict[tuple[str, str], UnixMs] = {}
        self._dirty: dict[str, None] = {}

    def restore(self, seen: PodsSeen) -> None:
        """Take up what an earlier run said of a pod."""
        self._names[seen.namespace, seen.gang] = seen.uid
        if seen.phase:
            self._published[seen.uid] = seen
            self._dirty[seen.uid] = None
        else:
            self._ended_pods[seen.namespace, seen.gang] = seen.at_ms

    def put(self, row: Row) -> None:
        """Take a pod as it is now; it lives, and its chips are known."""
        self._rows[row.uid] = row
        self._dirty[row.uid] = None

    def drop(self, uid: str) -> None:
        """Take note that a pod is foreign no longer, has ended or is gone."""
        if self._rows.pop(uid, None) is not None or uid in self._published:
            self._dirty[uid] = None

    def due(self, now_ms: UnixMs) -> list[PodsSeen]:
        """Facts that differ from what was said, in the order of uids."""
        for name in [name for name, at_ms in self._ended_pods.items() if at_ms + REST_MS <= now_ms]:
            del self._ended_pods[name], self._names[name]
        facts: list[PodsSeen] = []
        for uid in sorted(self._dirty):
            row, said = self._rows.get(uid), self._published.get(uid)
            fact = self._ended(said, now_ms) if row is None else self._fact(row, said, now_ms)
            if fact is None or (said is not None and _same(said, fact)):
                del self._dirty[uid]
            else:
                facts.append(fact)
        return facts

    def say(self, fact: PodsSeen) -> None:
        """Note that a fact was said."""
        if fact.phase:
            self._published[fact.uid] = fact
        else:
            self._published.pop(fact.uid, None)
            self._ended_pods[fact.namespace, fact.gang] = fact.at_ms
        self._dirty[fact.uid] = None

    def _fact(self, row: Row, said: PodsSeen | None, now_ms: UnixMs) -> PodsSeen:
        gang = said.gang if said is not None else self._name(row)
        told = {0: self._entry_of(row)}
        return pods_fact((row.namespace, gang), (row.uid, 0), told, alike({0: row}, None), foreign=True, at_ms=now_ms)

    def _name(self, row: Row) -> str:
        """Name of the pod's subject: its own, or with its uid where another pod has just had that name."""
        name = f"{PREFIX}{row.name}"
        if self._names.setdefault((row.namespace, name), row.uid) != row.uid:
            name = f"{name}/{row.uid}"
            self._names[row.namespace, name] = row.uid
        return name

    @staticmethod
    def _ended(said: PodsSeen | None, now_ms: UnixMs) -> PodsSeen | None:
        """Word that a pod is gone; None where it was never told of."""
        if said is None:
            return None
        return PodsSeen(said.namespace, said.gang, said.uid, 0, foreign=True, at_ms=now_ms)


def _same(said: PodsSeen, fact: PodsSeen) -> bool:
    return msgspec.structs.replace(said, at_ms=0) == msgspec.structs.replace(fact, at_ms=0)
