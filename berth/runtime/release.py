"""The installed distribution: its name on the package index, and its release."""

from typing import Final

DISTRIBUTION: Final = "berth-npu"
"""``berth`` on the package index belongs to another project."""


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
