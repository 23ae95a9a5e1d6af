"""The installed distribution: its name on the package index, its release, and what extensions add.

Nothing of a real cell imports ``berth.lab``: its commands and its simulated cluster are found by entry points, and only
where the extra ``lab`` is installed.
"""

from typing import Final

DISTRIBUTION: Final = "berth-npu"
"""``berth`` on the package index belongs to another project."""
COMMANDS: Final = "berth.commands"
"""Group of entry points to tuples of commands."""
PARTS: Final = "berth.parts"
"""Group of entry points to services that run in the process of a cell, by their names."""
LAB: Final = "lab"
"""Extra that has the simulated cluster and the commands that start a cell on this machine."""


def release() -> str:
    """Version of the installed distribution, such as ``0.4.0`` or ``0.5.0.dev1``.

    Raises:
        importlib.metadata.PackageNotFoundError: Berth is not installed; a folder on the module path is not enough.
    """
    import importlib.metadata  # noqa: PLC0415  # takes more time than all else that the list of commands imports

    return importlib.metadata.version(DISTRIBUTION)


def install_extra(name: str) -> str:
    """Command that installs an optional part, for messages: ``pip install 'berth-npu[plots]'``."""
    return f"pip install '{DISTRIBUTION}[{name}]'"


def extensions(group: str) -> dict[str, object]:
    """What the entry points of a group lead to, by name and in the order of names.

    Those whose modules or libraries are not installed are left out.

    Args:
        group: Name of the group.
    """
    import importlib.metadata  # noqa: PLC0415  # takes more time than all else that the list of commands imports

    found: dict[str, object] = {}
    for point in sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name):
        try:
            found[point.name] = point.load()
        except ModuleNotFoundError:
            continue
    return found
