"""Whether another client writes the ConfigMaps about faults.

The API server keeps, for each client, the fields that it wrote and the time at which it last changed one of them
(``metadata.managedFields``). A scheduler that is in use changes its fields whenever a fault comes or goes; one that has
been stopped leaves its fields, with an old time.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.formats.kubernetes.lean import Lean
from berth.runtime.kube.http import BROKEN_JSON
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.units import unix_ms

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
MANAGER: Final = "berth-summary"
"""Name under which summary writes."""


class ManagedField(Lean, frozen=True):
    """Fields that a client wrote."""

    manager: str = ""
    time: str = ""
    fields: dict[str, msgspec.Raw] | None = msgspec.field(default=None, name="fieldsV1")


class ManagedMeta(Lean, frozen=True):
    """Metadata of an object with the clients that wrote it."""

    managed_fields: list[ManagedField] | None = None


class ManagedMap(Lean, frozen=True):
    """A ConfigMap with the clients that wrote it."""

    metadata: ManagedMeta = ManagedMeta()
    data: dict[str, str] | None = None


class OtherWriter(NamedTuple):
    """A client that wrote a field."""

    manager: str
    key: str
    at_ms: int


def other_writer(found: ManagedMap, keys: Collection[str]) -> OtherWriter | None:
    """The other client that changed one of the keys last; None without one.

    Args:
        found: The ConfigMap.
        keys: Keys of its data.
    """
    writers = [
        OtherWriter(entry.manager, key, unix_ms(entry.time))
        for entry in found.metadata.managed_fields or ()
        if entry.manager != MANAGER
        for key in sorted(_data_keys(entry) & frozenset(keys))
    ]
    return max(writers, key=lambda one: (one.at_ms, one.manager, one.key), default=None)


async def read_map(api: Api, path: str) -> ManagedMap | None:
    """A ConfigMap; None if it does not exist.

    Raises:
        TransientError: The server did not answer.
        RefusedError: The server refuses it.
    """
    try:
        return await api.get(path, ManagedMap)
    except RefusedError as error:
        if error.is_absent:
            return None
        raise


def _data_keys(entry: ManagedField) -> frozenset[str]:
    raw = (entry.fields or {}).get("f:data")
    try:
        fields: Mapping[str, object] = _FIELDS.decode(raw) if raw is not None else {}
    except BROKEN_JSON:
        return frozenset()  # no API server writes another form
    return frozenset(name.removeprefix("f:") for name in fields)
