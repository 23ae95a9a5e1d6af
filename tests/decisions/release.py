"""Settings of this release with faults handled, for histories that say only what differs from it."""

from typing import Any, Final

import msgspec

from berth.schemas.ledger import RELEASE, Settings
from berth.services.dispatcher.config import FaultsConfig

_SEALED: Final = frozenset(
    {"chain", "corrections", "recoveries", "plan_before_delete", "hold_places_ms", "fault_settle_ms"}
)
"""Fields that cells of the core set themselves, or that differ from those of a dispatcher there."""


def faults_config() -> FaultsConfig:
    """What a dispatcher is told so that faults are handled."""
    return FaultsConfig(**_known(FaultsConfig, {"enabled": True}))


def faulty_fields() -> dict[str, Any]:
    """Fields of the settings that let faults be handled."""
    return _known(Settings, {"recoveries": 1})


def release_fields() -> dict[str, Any]:
    """Fields of :data:`RELEASE` that are not the defaults of :class:`Settings`, but for those of cells of the core."""
    plain = msgspec.structs.asdict(Settings())
    fields = msgspec.structs.asdict(RELEASE)
    return {name: value for name, value in fields.items() if value != plain[name] and name not in _SEALED}


def _known(struct: type[msgspec.Struct], fields: dict[str, Any]) -> dict[str, Any]:
    """Those of the fields that there are."""
    return {name: value for name, value in fields.items() if name in struct.__struct_fields__}
