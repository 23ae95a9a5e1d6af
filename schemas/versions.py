"""Versions of the messages that every reader must know: records of the ledger, and snapshots of what they amount to.

A change that alters what a reader makes of such a message gets a new version here, with the release that reads it first
and the setting that makes the dispatcher write it. Until the settings of the epoch enable it, the old version is
written, which older releases read. ``docs/messages.md`` states the rule.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.schemas.chain import FIRST, chained
from berth.schemas.envelope import sealed
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.status import SnapshotBody


class Version(NamedTuple):
    """A version of a kind.

    Attributes:
        number: The version, from 1 on.
        release: First release that reads it; empty for version 1 of the kinds of 0.1, which every release reads.
        setting: Field of :class:`Settings` that enables it: the version is written if the field is true, or a number
            above 0; empty for a version that is always written.
    """

    number: int
    release: str = ""
    setting: str = ""


Versions = Mapping[str, Sequence[Version]]
"""Versions by kind, each table ascending."""

VERSIONS: Final[Versions] = {
    Epoch.KIND: (Version(2, "0.5"),),
    Round.KIND: (Version(3, "0.5"),),
    SnapshotBody.KIND: (Version(3, "0.5"),),
}
"""What this release writes. The last version of a kind is the ``VERSION`` of its message; version 1 of a new kind of
the ledger names a release."""


def encode_record(
    message: Epoch | Round | SnapshotBody,
    settings: Settings,
    *,
    chain: bytes = FIRST,
    sequence: int = 0,
    versions: Versions = VERSIONS,
) -> bytes:
    """Encode a record or a snapshot in the newest version that the settings enable.

    Args:
        message: The record or snapshot.
        settings: Settings of its epoch; of an epoch record its own.
        chain: Digest of the chain before the record.
        sequence: Sequence that the record gets; 0: it gets no chain value, as snapshots and what is only compared.
        versions: Versions by kind.

    Returns:
        The bytes. They depend on the arguments alone.
    """
    enabled = [
        version for version in versions[message.KIND] if not version.setting or bool(getattr(settings, version.setting))
    ]
    newest = enabled[-1]
    envelope = sealed(message, version=newest.number, release=newest.release)
    if sequence:
        envelope = msgspec.structs.replace(envelope, chain=chained(chain, sequence, envelope))
    return envelope.encode()


def withdrawn(before: Settings, after: Settings, *, versions: Versions = VERSIONS) -> list[str]:
    """Settings that enable a version before and not after, ascending.

    An epoch must not withdraw one: what was folded under it would be in snapshots of the old version.
    """
    named = {version.setting for table in versions.values() for version in table if version.setting}
    return sorted(name for name in named if getattr(before, name) and not getattr(after, name))
