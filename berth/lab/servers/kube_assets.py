"""Location of the programs of a Kubernetes API server. ``make kube-assets`` builds them."""

import asyncio
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from berth.runtime.config import kube_assets_from_environment
from berth.runtime.errors import FatalError

API_SERVER: Final = "kube-apiserver"
ETCD: Final = "etcd"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
"""For tests, which compare the nodes that it allows with those of Berth."""

_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)\S*")


def kube_assets(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of the programs: ``KUBEBUILDER_ASSETS``, else the highest version in the cache.

    Args:
        environ: Environment; None means that of the process.

    Raises:
        FatalError: There is no such folder, or it lacks etcd or kube-apiserver.
    """
    named, cache = kube_assets_from_environment(environ)
    if named is not None:
        missing = [name for name in (ETCD, API_SERVER) if not (named / name).is_file()]
        if missing:
            raise FatalError(f"KUBEBUILDER_ASSETS is {named}, which has no {' and no '.join(missing)}")
        return named.resolve()
    found = [
        (tuple(map(int, match.groups())), folder.name, folder)
        for folder in (cache.iterdir() if cache.is_dir() else ())
        if (match := _VERSION.fullmatch(folder.name)) and (folder / API_SERVER).is_file()
    ]
    if not found:
        raise FatalError(f"no Kubernetes API server in {cache}: run make kube-assets or set KUBEBUILDER_ASSETS")
    return max(found)[-1]


def program_in(assets: Path, name: str) -> Path:
    """Path of a program in a folder.

    Raises:
        FatalError: It does not exist.
    """
    path = assets / name
    if not path.is_file():
        raise FatalError(f"{assets} has no {name}: run make kube-assets or set KUBEBUILDER_ASSETS")
    return path


async def version_of(program: Path) -> str:
    """Version that a program of Kubernetes prints, such as ``v1.36.3``.

    Raises:
        FatalError: It prints no version.
    """
    asked = await asyncio.create_subprocess_exec(program, "--version", stdout=subprocess.PIPE)
    printed, _ = await asked.communicate()
    match = _VERSION.search(printed.decode(errors="replace"))
    if match is None:
        raise FatalError(f"{program} --version prints {printed!r}, expected a version such as v1.36.3")
    return match.group()
