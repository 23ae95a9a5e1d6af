"""Pods with chips that Berth did not place, as facts: one subject per pod. Pure."""

from collections.abc import Callable
from typing import Final

from berth.schemas.columns import unpack
from berth.schemas.facts import PodsSeen, is_repeat
from berth.schemas.units import UnixMs
from berth.services.inventory.pod_rows import PodRow
from berth.services.inventory.pods.facts import RankState, common_fields, pods_fact

PREFIX: Final = "pod/"
NAME_KEPT_MS: Final = 600_000
"""How long the name of a deleted pod stays reserved for its uid: readers may not have released its chips yet."""

QueueOf = Callable[[PodRow], str]
"""Queue of a pod; empty if nothing names one."""


class Foreign:
    """Foreign pods, and the facts published about them.

    Args:
        rank_state: State of a pod, with the chips that its node has.
        queue_of: Queue of a pod.
    """

    def __init__(self, rank_state: Callable[[PodRow], RankState], queue_of: QueueOf) -> None:
        self._rank_state = rank_state
        self._queue_of = queue_of
        self._rows: dict[str, tuple[PodRow, tuple[str, str]]] = {}
        """Pods, with name and uid of the job of which they may be; empty without."""
        self._published: dict[str, PodsSeen] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._reserved_names: dict[tuple[str, str], UnixMs] = {}
        self._dirty: dict[str, None] = {}

    def restore(self, seen: PodsSeen) -> None:
        """Restore the fact about a pod that an earlier run published."""
        self._names[seen.namespace, seen.gang] = seen.uid
        if seen.phase:
            self._published[seen.uid] = seen
            self._dirty[seen.uid] = None
        else:
            self._reserved_names[seen.namespace, seen.gang] = seen.at_ms

    def is_published(self, uid: str) -> bool:
        """Whether facts say that a pod is foreign."""
        return uid in self._published

    def published_chips(self, uid: str) -> int:
        """Bitmap of the chips that facts say a pod has."""
        seen = self._published.get(uid)
        return sum(unpack(seen.chips, 8)) if seen is not None else 0

    @property
    def is_changed(self) -> bool:
        """Whether facts may be due."""
        return bool(self._dirty)

    def put(self, row: PodRow, *, is_claimed: bool = False) -> None:
        """Take the current state of a live pod whose chips are known.

        Args:
            row: The pod.
            is_claimed: Its annotations name a job of which no verdict is known: it may be a pod of that job.
        """
        claimed = row.identity if is_claimed else None
        self._rows[row.uid] = (row, (claimed.job, claimed.uid) if claimed is not None else ("", ""))
        self._dirty[row.uid] = None

    def drop(self, uid: str) -> None:
        """A pod is no longer foreign, has finished or is gone."""
        if self._rows.pop(uid, None) is not None or uid in self._published:
            self._dirty[uid] = None

    def due(self, now_ms: UnixMs) -> list[PodsSeen]:
        """Facts that differ from the published ones, in the order of uids."""
        for name in [name for name, at_ms in self._reserved_names.items() if at_ms + NAME_KEPT_MS <= now_ms]:
            del self._reserved_names[name], self._names[name]
        facts: list[PodsSeen] = []
        for uid in sorted(self._dirty):
            known, published = self._rows.get(uid), self._published.get(uid)
            fact = self._ended(published, now_ms) if known is None else self._fact(*known, published, now_ms)
            if fact is None or is_repeat(published, fact):
                del self._dirty[uid]
            else:
                facts.append(fact)
        return facts

    def note_published(self, fact: PodsSeen) -> None:
        """Note that a fact was published."""
        if fact.phase:
            self._published[fact.uid] = fact
        else:
            self._published.pop(fact.uid, None)
            self._reserved_names[fact.namespace, fact.gang] = fact.at_ms
        self._dirty[fact.uid] = None

    def _fact(self, row: PodRow, job: tuple[str, str], published: PodsSeen | None, now_ms: UnixMs) -> PodsSeen:
        gang = published.gang if published is not None else self._name(row)
        by_rank = {0: self._rank_state(row)}
        return pods_fact(
            (row.namespace, gang),
            (row.uid, 0),
            by_rank,
            common_fields({0: row}, None),
            foreign=True,
            job=job,
            queue=self._queue_of(row),
            at_ms=now_ms,
        )

    def _name(self, row: PodRow) -> str:
        """Name of the pod's subject: the pod's name, with its uid where another pod had that name recently."""
        name = f"{PREFIX}{row.name}"
        if self._names.setdefault((row.namespace, name), row.uid) != row.uid:
            name = f"{name}/{row.uid}"
            self._names[row.namespace, name] = row.uid
        return name

    @staticmethod
    def _ended(published: PodsSeen | None, now_ms: UnixMs) -> PodsSeen | None:
        """Fact that a pod is gone; None where no fact about it was published."""
        if published is None:
            return None
        return PodsSeen(published.namespace, published.gang, published.uid, 0, foreign=True, at_ms=now_ms)
