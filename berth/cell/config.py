"""Settings of a cell in one process: common sections, and one for each service.

A service gets its settings as in a process of its own: defaults, overridden by its section, overridden by the
environment. So an environment that services share means the same in both modes.
"""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from berth.cell.part import BY_SECTION, NAMES, ON_KUBERNETES, USERS_OF_KUBERNETES, Part, part_of
from berth.runtime.config import TOP_LEVEL, ConfigError, ProbeConfig, ServiceConfig, read_tree, settings_from
from berth.runtime.kube.config import KubeConfig

_COMMON: Final = ("bus", "log", "grace_s")
"""What each service gets from the cell."""
_OF_PROCESS: Final = ("bus", "log", "probes", "grace_s")
"""What belongs to the process, so that no service has one of its own."""


class CellConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a cell in one process."""

    kube: KubeConfig | None = None
    """The Kubernetes cluster: inventory, health and summary run, and the binder binds pods there. A section ``kube`` of
    one of them takes its place."""
    api: dict[str, Any] = {}
    """Settings of this service; likewise the next ones."""
    binder: dict[str, Any] = {}
    dispatcher: dict[str, Any] = {}
    inventory: dict[str, Any] = {}
    health: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    gateway: dict[str, Any] | None = None
    """Settings of the gateway, which runs if the section exists."""
    nodesim: dict[str, Any] | None = None
    """Settings of the simulated cluster; likewise."""


class Running(NamedTuple):
    """A service that runs as a part, with its settings.

    It has half of the grace period of the process: those before it in the order of the end have the other half.
    """

    name: str
    part: Part
    config: ServiceConfig


class CellSettings(NamedTuple):
    """Settings of the process, and of each service in the order in which they are stopped."""

    cell: CellConfig
    services: list[Running]


def load_cell(path: Path | None, environ: Mapping[str, str] | None = None) -> CellSettings:
    """Read the settings of a cell.

    Args:
        path: TOML file, or None.
        environ: Environment; None means that of the process.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown, missing or out of bounds; the field names the
            section.
    """
    tree = read_tree(path)
    cell = settings_from(CellConfig, tree, environ)
    common: dict[str, Any] = {name: tree[name] for name in _COMMON if name in tree}  # with what the environment says
    kube = tree.get("kube", {}) if cell.kube is not None else None
    return CellSettings(cell, [_running(name, cell, common, kube, environ) for name in NAMES if _runs(name, cell)])


def _runs(name: str, cell: CellConfig) -> bool:
    if name in ON_KUBERNETES:
        return cell.kube is not None or "kube" in getattr(cell, name)
    return name not in BY_SECTION or getattr(cell, name) is not None


def _running(
    name: str,
    cell: CellConfig,
    common: dict[str, Any],
    kube: dict[str, Any] | None,
    environ: Mapping[str, str] | None,
) -> Running:
    section: dict[str, Any] = getattr(cell, name) or {}
    for field in _OF_PROCESS:
        if field in section:
            raise ConfigError(field=f"{name}.{field}", expected=f"expected in the common part, as {field}")
    part = part_of(name)
    tree = deepcopy({**common, **section})
    if kube is not None and name in USERS_OF_KUBERNETES:
        tree.setdefault("kube", deepcopy(kube))
    for field, (value, _) in part.fixed.items():
        tree.setdefault(field, value)
    try:
        config = settings_from(part.config_type, tree, environ)
    except ConfigError as error:
        field = name if error.field in {"", TOP_LEVEL} else f"{name}.{error.field}"
        raise ConfigError(field=field, value=error.value, expected=error.expected) from error
    for field, (value, reason) in part.fixed.items():
        if (found := getattr(config, field)) != value:
            raise ConfigError(field=f"{name}.{field}", value=repr(found), expected=f"expected {value!r}: {reason}")
    return Running(name, part, msgspec.structs.replace(config, probes=ProbeConfig(), grace_s=cell.grace_s / 2))
