"""Findings: what is wrong with something that is stored, what it means, and what repairs it."""

from collections.abc import Iterable
from typing import Final

import msgspec

REPAIR: Final = "berth repair"
RESTORE: Final = "berth restore"


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be."""

    code: str
    """What it is, for programs."""
    where: str
    """Stream, or kind of object."""
    sequence: int = 0
    """First message that it is about; 0 for none."""
    last_seq: int = 0
    """Last of them."""
    name: str = ""
    """Job, pod or subject; empty for none."""
    text: str = ""
    """What is wrong and what that means, in one sentence."""
    repair: str = ""
    """Command that repairs it; empty if nothing needs to be done."""

    @property
    def place(self) -> str:
        """Where it is, in words."""
        span = f" {self.sequence}" if self.sequence else ""
        if self.last_seq > self.sequence:
            span += f" to {self.last_seq}"
        return f"{self.where}{span}" + (f" ({self.name})" if self.name and self.sequence else f" {self.name}".rstrip())


class Checked(msgspec.Struct, frozen=True):
    """What one check has looked at."""

    what: str
    """Such as ``records`` or ``statuses``."""
    count: int
    not_checked: str = ""
    """Why all or some were not checked; empty if all were."""


class Findings:
    """Findings of a check, in the order in which they were made.

    One about the next message of the same stream that says the same becomes one with the finding before.
    """

    def __init__(self) -> None:
        self._found: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        one = msgspec.structs.replace(finding, last_seq=max(finding.sequence, finding.last_seq))
        last = self._found[-1] if self._found else None
        if (
            last is not None
            and one.sequence == last.last_seq + 1
            and _likeness(one) == _likeness(last)
            and last.sequence
        ):
            self._found[-1] = msgspec.structs.replace(last, last_seq=one.last_seq)
        else:
            self._found.append(one)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for finding in findings:
            self.add(finding)

    def all(self) -> list[Finding]:
        """All of them."""
        return list(self._found)


def _likeness(one: Finding) -> tuple[str, ...]:
    return one.code, one.where, one.name, one.text, one.repair


def needs_repair(findings: Iterable[Finding]) -> bool:
    """Whether something must be done about any of them."""
    return any(one.repair for one in findings)
