"""Pods of jobs, by rank. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from berth.schemas.columns import unpack
from berth.schemas.facts import MembersSeen

_RANK_BYTES: Final = 4


class Member(NamedTuple):
    """A pod that has a rank."""

    pod: str
    uid: str
    rank_index: str
    is_stale: bool


class JobMembers:
    """Pods of one job request, decoded on first access."""

    __slots__ = ("_rows", "fact")

    def __init__(self, fact: MembersSeen) -> None:
        self.fact = fact
        self._rows: dict[int, Member] | None = None

    @property
    def rows(self) -> dict[int, Member]:
        """Pods by rank, ascending."""
        if self._rows is None:
            fact = self.fact
            ranks = unpack(fact.rank, 4)
            indexes = fact.rank_index or [""] * len(ranks)
            stale = set(fact.stale)
            columns = zip(ranks, fact.pods, fact.pod_uids, indexes, strict=True)
            self._rows = {rank: Member(pod, uid, index, rank in stale) for rank, pod, uid, index in columns}
        return self._rows

    def backup(self, rank: int, uid: str) -> Member | None:
        """Backup pod of a rank: beside the pod of the rank, or as its pod; None if it is not there."""
        row = self.rows.get(rank)
        if row is not None and row.uid == uid:
            return row
        found = next((one for one in self.fact.backups if (one.rank, one.uid) == (rank, uid)), None)
        rank_index = row.rank_index if row is not None else ""
        return Member(found.pod, uid, rank_index, is_stale=False) if found is not None else None

    def with_backups(self, backups: Mapping[int, str]) -> dict[int, Member]:
        """Pods by rank, ascending: of some ranks their backup pods (uid), if they are there."""
        found = {rank: self.backup(rank, uid) for rank, uid in backups.items()}
        rows = {**self.rows, **found} if backups else self.rows
        return {rank: member for rank, member in sorted(rows.items()) if member is not None}


class Members:
    """Pods of all jobs."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], JobMembers] = {}

    def take(self, fact: MembersSeen) -> None:
        """Take a fact; it replaces the previous one.

        Raises:
            ValueError: Its columns are inconsistent; the previous fact stays in force.
        """
        rows = len(fact.pods)
        lengths = (len(fact.rank) / _RANK_BYTES, len(fact.pod_uids), len(fact.rank_index) or rows)
        if any(length != rows for length in lengths):
            raise ValueError(
                f"members of {fact.namespace}/{fact.job}: rank, pod_uids and rank_index are of "
                f"{', '.join(f'{length:g}' for length in lengths)} rows: expected {rows}, as pods"
            )
        name = (fact.namespace, fact.job)
        if fact.rank or fact.hold:
            self._members[name] = JobMembers(fact)
        else:
            self._members.pop(name, None)

    def of(self, namespace: str, job: str, uid: str) -> JobMembers | None:
        """Pods of a job request; None when there are none for the request with this uid."""
        job_members = self._members.get((namespace, job))
        return job_members if job_members is not None and job_members.fact.uid == uid else None
