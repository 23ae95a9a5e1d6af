"""A part: a service that runs in the process of a cell."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth.runtime.config import ConfigError, ServiceConfig
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.process import Serve
from berth.runtime.release import LAB, PARTS, extensions, install_extra

CELL: Final = "cell"
"""Name of the process that runs all services of a cell."""
STOPPED_TOGETHER: Final = (
    ("gateway",),
    ("api",),
    ("binder",),
    ("dispatcher",),
    ("inventory", "health", "summary"),
    ("nodesim",),
)
"""Services in the order in which they are stopped: what others ask for work first, the cluster last."""
NAMES: Final = tuple(name for group in STOPPED_TOGETHER for name in group)
ON_KUBERNETES: Final = ("inventory", "health", "summary")
"""Services that run only with a Kubernetes cluster."""
BY_SECTION: Final = ("gateway", "nodesim")
"""Services that run only if the settings have a section for them."""
USERS_OF_KUBERNETES: Final = (*ON_KUBERNETES, "binder")
OF_LAB: Final = ("nodesim",)
"""Services of the extra ``lab``, which are found by entry points."""


@dataclass(frozen=True, slots=True)
class Part:
    """How a service runs as a part.

    Attributes:
        config_type: Struct of its settings.
        metrics: Creates its metrics on a registry.
        serve: Runs it.
        fixed: Settings that a part has always, and why.
    """

    config_type: type[ServiceConfig]
    metrics: Callable[[MetricsRegistry], object]
    serve: Serve[Any, Any]
    fixed: Mapping[str, tuple[object, str]] = field(default_factory=dict)


def part_of(name: str) -> Part:
    """Load a part.

    Args:
        name: One of :data:`NAMES`.

    Raises:
        ConfigError: It is of the extra ``lab``, which is not installed.
    """
    if name in OF_LAB:
        found = extensions(PARTS).get(name)
        if not isinstance(found, Part):
            raise ConfigError(field=name, expected=f"expected only with the extra {LAB}: {install_extra(LAB)}")
        return found
    part: Part = importlib.import_module(f"berth.cell.parts.{name}").PART
    return part
