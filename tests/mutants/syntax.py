"""Parts of a syntax tree: where they are in the text, and what they name."""

import ast
import functools
from typing import Final

Place = tuple[int, int]
"""Line from 1, and column in bytes from 0."""


_SIMPLE: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Delete)
_LOGS: Final = frozenset({"log", "_log", "logger", "_logger", "logging", "warnings"})
_POINT: Final = "hit"
"""Method of a fault point, where tests break something."""


class Spans:
    """Bytes of the nodes of a module.

    Args:
        source: Its text.
    """

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        """Where a node begins and ends, or nodes from a first to a last one."""
        (line, column), (end_line, end_column) = start_of(first), end_of(first if last is None else last)
        return self._starts[line - 1] + column, self._starts[end_line - 1] + end_column

    def text(self, first: ast.AST, last: ast.AST | None = None) -> str:
        """Their text."""
        start, end = self.of(first, last)
        return self._source[start:end].decode()


@functools.lru_cache(maxsize=64)
def spans_of(source: bytes) -> Spans:
    """Those of a module, which many patterns ask for."""
    return Spans(source)


@functools.lru_cache(maxsize=64)
def tree_of(source: bytes) -> ast.Module:
    """The tree of a module, which many patterns ask for."""
    return ast.parse(source)


def start_of(node: ast.AST) -> Place:
    """Where a statement or expression begins."""
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def end_of(node: ast.AST) -> Place:
    """Where a statement or expression ends."""
    return getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0)


def blocks_of(node: ast.AST) -> list[list[ast.stmt]]:
    """Blocks of a statement, those of its handlers and cases included; empty for a simple one."""
    inner = [node, *getattr(node, "handlers", []), *getattr(node, "cases", [])]
    blocks = [getattr(one, field, None) for one in inner for field in ("body", "orelse", "finalbody")]
    return [block for block in blocks if isinstance(block, list) and block]


def last_name(node: ast.AST) -> str:
    """Name of a variable or attribute; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_in(*nodes: ast.AST) -> frozenset[str]:
    """Names of all variables and attributes in nodes."""
    return frozenset(name for node in nodes for part in ast.walk(node) if (name := last_name(part)))


def is_text(node: ast.AST) -> bool:
    """Whether an expression is a string, with or without parts that are computed."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_ordered(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two simple statements may depend on their order, and both orders can be meant."""
    pair = one, other
    if not all(isinstance(each, _SIMPLE) for each in pair) or one.lineno == other.lineno:
        return False
    if any(isinstance(each, ast.Expr) and _is_quiet(each.value) for each in pair):
        return False
    bound = {name.id for name in ast.walk(one) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    names = {name.id for name in ast.walk(other) if isinstance(name, ast.Name)}
    if bound & names:
        return isinstance(one, ast.AugAssign)  # otherwise a name would be read before it is bound
    used = [{ast.unparse(part) for part in ast.walk(each) if isinstance(part, ast.Attribute)} for each in pair]
    is_waiting = all(any(isinstance(part, ast.Await) for part in ast.walk(each)) for each in pair)
    is_shared = bool(_changed_by(one) & used[1] or _changed_by(other) & used[0])
    return is_waiting or is_shared or all(_is_own_call(each) for each in pair)


def _changed_by(node: ast.stmt) -> set[str]:
    """Attributes that a statement sets, or whose methods it calls as a whole."""
    call = node.value if isinstance(node, ast.Expr) else None
    called = [call.func.value] if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else []
    stored = [part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)]
    return {ast.unparse(part) for part in [*called, *stored] if isinstance(part, ast.Attribute)}


def _is_own_call(node: ast.stmt) -> bool:
    """Whether a statement calls a method of the same object, or a function."""
    call = node.value if isinstance(node, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) else None
    return isinstance(func, ast.Name) or (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name))


def _is_quiet(value: ast.expr) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(value, ast.Constant) or (isinstance(call, ast.Call) and is_log(call.func))


def is_log(func: ast.expr) -> bool:
    """Whether what is called writes a log, or is a fault point."""
    return isinstance(func, ast.Attribute) and (last_name(func.value) in _LOGS or func.attr == _POINT)
