"""The part of the client library that reads kubeconfigs and runs their plug-ins.

The packages of the library import the classes of all objects of the API: 40 MB and half a second. Reading a kubeconfig
needs none of them, so its modules are loaded without the code of their packages.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

_ROOT: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_ROOT}.client"


class KubeconfigLibrary(NamedTuple):
    """What is used of the library.

    Attributes:
        configuration: Class of a configuration.
        load: Reads kubeconfigs into a configuration; see ``kubernetes_asyncio.config.load_kube_config``.
    """

    configuration: Any
    load: Any


def kubeconfig_library() -> KubeconfigLibrary:
    """Load the part of the library, if it was not loaded yet."""
    if _ROOT not in sys.modules:
        _load_without_packages()
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415  # after the packages are there
    from kubernetes_asyncio.config.kube_config import load_kube_config  # noqa: PLC0415  # as above

    return KubeconfigLibrary(Configuration, load_kube_config)


def _load_without_packages() -> None:
    """Put empty packages in the place of the library's, with the one name that its modules ask of them."""
    spec = find_spec(_ROOT)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    _package(_ROOT, folders)
    client = _package(_CLIENT, [str(Path(folder) / "client") for folder in folders])
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415  # as above

    client.__dict__.update(Configuration=Configuration, ApiClient=None)


def _package(name: str, folders: list[str]) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = folders
    sys.modules[name] = package
    return package
