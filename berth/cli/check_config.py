"""``berth check-config``: effective settings of a service."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from berth import services
from berth.cell.config import load_cell
from berth.cell.part import CELL, NAMES, OF_LAB, part_of
from berth.cli.cell import run
from berth.cli.output import WRONG_USE, CommandError, emit, print_result
from berth.formats.yaml_tree import nearest
from berth.runtime.config import ServiceConfig, load

_SECRET: Final = re.compile(r"(secret|password|token|credential|private_key)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"//[^@/\s]*@")
_STARS: Final = "***"


def settings_of(service: str) -> type[ServiceConfig]:
    """Struct of a service's settings.

    Raises:
        CommandError: There is no such service.
        ConfigError: It is of the extra ``lab``, which is not installed.
    """
    if service in OF_LAB:
        return part_of(service).config_type
    known = sorted([*OF_LAB, *(module.name for module in pkgutil.iter_modules(services.__path__) if module.ispkg)])
    if service not in known:
        raise CommandError(f"service is {service!r}, expected {nearest(service, [*known, CELL])}", code=WRONG_USE)
    module = importlib.import_module(f"berth.services.{service}.config")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceConfig) and value is not ServiceConfig
    ]
    return found[0]


def check_config(service: str, file: Path, *, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Print the effective settings of a service from a file, the environment and the defaults.

    Args:
        service: Name of the service, such as dispatcher; cell for all services in one process.
        file: Settings in TOML.
        json: Print JSON instead of text.
    """

    async def work() -> None:
        tree = starred(_cell_tree(file) if service == CELL else _tree(load(settings_of(service), file)))
        if json:
            emit(tree)
            return
        for path, value in sorted(_flat(tree).items()):
            print_result(f"{path} = {msgspec.json.encode(value).decode()}")

    return run(work)


def _cell_tree(file: Path) -> dict[str, Any]:
    """Settings of the process of a cell, and of each service in it."""
    settings = load_cell(file)
    common = {name: value for name, value in _tree(settings.cell).items() if name not in NAMES}
    own = set(common) - {"kube"}
    return common | {
        one.name: {name: value for name, value in _tree(one.config).items() if name not in own}
        for one in settings.services
    }


def _tree(config: msgspec.Struct) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    return tree


def starred(tree: Any, name: str = "") -> Any:  # noqa: ANN401  # a tree of settings of any form
    """The tree with secrets replaced by stars; the names of fields identify secrets."""
    if isinstance(tree, dict):
        return {key: starred(value, key) for key, value in tree.items()}
    if tree is not None and _SECRET.search(name):
        return _STARS
    return _PASSWORD.sub(f"//{_STARS}@", tree) if isinstance(tree, str) else tree


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
