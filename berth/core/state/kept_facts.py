"""Kept facts: the latest message of each subject that counts, for snapshots."""

from collections.abc import Iterable
from typing import Literal

from berth.schemas.status import KeptFact

Effect = Literal["folded", "void", "gone"]
"""What a fact did: it counts, it does not, or nothing is left of what it speaks of."""


class KeptFacts:
    """The latest messages by subject.

    Args:
        keeps: Whether to keep any.
    """

    def __init__(self, *, keeps: bool) -> None:
        self._kept: dict[str, tuple[int, bytes]] | None = {} if keeps else None

    def note(self, effect: Effect, subject: str, sequence: int, data: bytes) -> None:
        """Keep a fact that counts, or forget what was kept on its subject.

        Args:
            effect: What it did.
            subject: Subject on which it is stored.
            sequence: Its sequence.
            data: The message.
        """
        if self._kept is None or effect == "void":
            return
        if effect == "gone":
            self._kept.pop(subject, None)
        else:
            self._kept[subject] = (sequence, data)

    def forget(self, subjects: Iterable[str]) -> None:
        """Keep nothing of some subjects: no snapshot needs them."""
        if self._kept is not None:
            for subject in subjects:
                self._kept.pop(subject, None)

    def dump(self) -> list[KeptFact]:
        """All that is kept, by subject."""
        kept = self._kept or {}
        return [KeptFact(subject, kept[subject][0], kept[subject][1]) for subject in sorted(kept)]
