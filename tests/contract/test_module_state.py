"""No mutable state at module level in services and runtime: what a service keeps or counts belongs to one instance.

A module may hold constants: literals, types, compiled patterns and decoders, frozen values, and tables that nothing in
the module changes. It may not hold an object that remembers something, a cache, or a name that a function assigns.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for folder in ("services", "berth/runtime", "berth/lab/nodesim", "berth/lab/servers")
    for path in (ROOT / folder).rglob("*.py")
)
STATELESS = {
    "TypeVar", "bytes.fromhex", "ctypes.CDLL", "datetime.fromtimestamp", "frozenset", "get_args", "len", "msgspec.json.Decoder",
    "object", "range", "re.compile", "tuple", "Path", "CONTENT_POLICY.encode", "PODGROUPS.removeprefix",
}  # fmt: skip
"""Calls whose result cannot change."""
FROZEN = {
    "Access",
    "Alert",
    "Backoff",
    "Bounds",
    "GroupPods",
    "NodePlace",
    "Part",
    "PodCounts",
    "Rights",
    "Why",
    "missing",
}
"""Structs and tuples of ours that cannot be changed, and functions that make one."""
ALLOWED = {
    ("berth/runtime/fault_points.py", "POINTS"): "a tuple that a function of the module makes",
    ("berth/runtime/fault_points.py", "BINDER_POINTS"): "likewise",
    ("berth/runtime/fault_points.py", "VOLUME_POINTS"): "likewise",
    ("berth/runtime/fault_points.py", "RECOVERY_POINTS"): "likewise",
    ("berth/runtime/logs.py", "DEFAULT_LOG"): "keeps nothing: it looks up the form of the command line at each line",
    (
        "berth/lab/servers/ports.py",
        "_ports_taken",
    ): "ports belong to the process: no two servers may get the same",
}
CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse",
    "setdefault", "sort", "update",
}  # fmt: skip
CACHES = {"cache", "functools.cache", "lru_cache", "functools.lru_cache"}
DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that a module gives values, without those that only name types."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            if ast.unparse(node.annotation) != "TypeAlias":
                found[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            found.update((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
    return found


def changed(tree: ast.Module) -> set[str]:
    """Names that something in a module changes in place, or that a function assigns."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=names):
                found.update(names)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in CHANGING:
                found.add(name)
    return found


def remembers(value: ast.expr) -> bool:
    """Whether a value is one that could keep something; tables are judged by who changes them."""
    calls = [ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any(call not in STATELESS | FROZEN for call in calls)


def states_of(source: str) -> list[str]:
    """Names of a module that hold state, and functions that cache."""
    tree = ast.parse(source)
    values, changes = assigned(tree), changed(tree)
    local = {
        node.id
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assigning = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    found = [name for name, value in values.items() if remembers(value)]
    found += [
        name for name, value in values.items() if isinstance(value, DISPLAYS) and name in changes and name not in local
    ]
    found += sorted(assigning)
    found += [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator) in CACHES
    ]
    found += [
        ast.unparse(node.value.func)
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) != "main"
    ]
    return found


def test_no_module_of_services_or_runtime_keeps_state() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in MODULES for name in states_of(path.read_text("utf-8"))}
    assert sorted(found - ALLOWED.keys()) == [], "make it in the entry and pass it in"
    assert sorted(ALLOWED.keys() - found) == [], "nothing needs this exception any more"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("ROUNDS: Final = counter('rounds_total', 'Rounds.')", "ROUNDS"),
        ("readiness: Final = Readiness()", "readiness"),
        ("_LOG = structlog.get_logger()", "_LOG"),
        ("_waiting = asyncio.Event()", "_waiting"),
        ("_TABLE: Final = {'a': deque()}", "_TABLE"),
        ("_seen: Final[dict[str, int]] = {}\ndef take(name):\n    _seen[name] = 1", "_seen"),
        ("_seen: Final = []\ndef take(name):\n    _seen.append(name)", "_seen"),
        ("_seen = {1}\ndef drop(name):\n    _seen.discard(name)", "_seen"),
        ("_seen = {}\ndef drop(name):\n    del _seen[name]", "_seen"),
        ("_count = 0\ndef take():\n    global _count\n    _count += 1", "_count"),
        ("@functools.lru_cache(maxsize=None)\ndef names(): ...", "names"),
        ("@cache\ndef names(): ...", "names"),
        ("prometheus_client.disable_created_metrics()", "prometheus_client.disable_created_metrics"),
        ("structlog.configure(processors=[])", "structlog.configure"),
    ],
)
def test_planted_state_is_found(source: str, name: str) -> None:
    assert name in states_of(source)


@pytest.mark.parametrize(
    "source",
    [
        "_WORDS: Final = {'a': 'b'}",
        "_NUMBER: Final = re.compile('[0-9]+')",
        "_PLAIN: Final = msgspec.json.Decoder(Plain)",
        "T = TypeVar('T')",
        "Wake: TypeAlias = Callable[[list[str]], None]",
        "_WORDS: Final = {'a': 'b'}\ndef take(words):\n    seen = {}\n    seen['a'] = 1",
        "main('binder', BinderConfig, BinderMetrics, serve)",
    ],
)
def test_constants_are_no_state(source: str) -> None:
    assert states_of(source) == []
