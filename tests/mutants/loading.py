"""Code of modules: imported instead of that of their files, and that of each function in them."""

import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple


def import_instead(codes: Callable[[str], CodeType | None]) -> None:
    """Let modules be imported from code by their real path, where there is one."""
    usual = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return codes(os.path.realpath(self.path)) or usual(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]  # each loader of source files asks it


def import_texts(root: Path, texts: dict[str, str]) -> None:
    """Let modules be imported from texts instead of their files, by path from the root of a tree."""
    real = {os.path.realpath(root / name): text for name, text in texts.items()}
    import_instead(lambda path: compile(real[path], path, "exec", dont_inherit=True) if path in real else None)


def leave(names: Iterable[str]) -> None:
    """Forget modules, so that others of these names can be imported."""
    for name in [one for one in sys.modules if one.split(".")[0] in names]:
        del sys.modules[name]


class Codes(NamedTuple):
    """Code of a module by name and order, and the keys of that by name and line."""

    keys: dict[tuple[str, int], tuple[str, int]]
    codes: dict[tuple[str, int], CodeType]


def codes_of(module: CodeType) -> Codes:
    """Code of all functions of a module."""
    found = Codes({}, {})
    count: dict[str, int] = {}
    waiting = [module]
    while waiting:
        code = waiting.pop()
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        for one in inner:
            key = one.co_qualname, count.setdefault(one.co_qualname, 0)
            count[one.co_qualname] += 1
            found.codes[key] = one
            found.keys[place_of(one)] = key
        waiting += reversed(inner)
    return found


def place_of(code: CodeType) -> tuple[str, int]:
    """Name and line of code."""
    return code.co_qualname, code.co_firstlineno


def meaning_of(code: CodeType) -> tuple[Any, ...]:
    """What code does, without its lines."""
    inner = tuple((meaning_of(one) if isinstance(one, CodeType) else (type(one), one)) for one in code.co_consts)
    return code.co_code, inner, code.co_names, code.co_varnames, code.co_freevars
