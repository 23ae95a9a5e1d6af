"""Mutants of a module, generated from its syntax tree: each changes one place, and the rest keeps its form.

Left out is what no test should pin: docstrings, annotations, decorators, texts of errors and logs, ``__repr__``,
``__str__``, assertions, what only type checkers read, and strings with spaces.
"""

import ast
import re
from collections import Counter
from itertools import pairwise
from typing import Final, NamedTuple

from tests.mutants.syntax import Spans, blocks_of, is_log, is_ordered, is_text, last_name

MODULE: Final = "<module>"
_NEGATED: Final = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
_BOUNDARY: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+"}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_TEXTS_OF: Final = frozenset({"__repr__", "__str__"})
_TYPES: Final = frozenset({"Literal", "Annotated", "Callable", "TypeVar", "NewType", "cast", "__all__", "overload"})
_UNORDERED: Final = frozenset({"min", "max", "isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast"})
"""Swapped arguments change nothing, or no call of it can mean anything."""
_ENCODINGS: Final = frozenset({"utf-8", "ascii", "strict", "replace", "little", "big"})


class Edit(NamedTuple):
    """Bytes of a file that become others."""

    start: int
    end: int
    text: str


class Site(NamedTuple):
    """A generated mutant.

    Attributes:
        path: The file, from the root of its tree.
        scope: The function or class around it; :data:`MODULE` for none.
        kind: What is done, such as ``boundary``.
        number: How many of this kind the scope has before it.
        edits: What changes, in order.
    """

    path: str
    scope: str
    kind: str
    number: int
    edits: tuple[Edit, ...]

    @property
    def name(self) -> str:
        """Identity, without line numbers: changes elsewhere do not rename it."""
        return f"{self.path}::{self.scope}::{self.kind}-{self.number}"


def changed(source: bytes, edits: tuple[Edit, ...]) -> bytes:
    """A file after edits, which do not overlap."""
    for edit in sorted(edits, reverse=True):
        source = source[: edit.start] + edit.text.encode() + source[edit.end :]
    return source


def sites_in(path: str, source: bytes) -> list[Site]:
    """Mutants of a module, in the order of its text."""
    return sorted(_Module(path, source).sites, key=lambda site: (site.edits, site.kind))


class _Module(ast.NodeVisitor):
    """Walks a module and notes sites."""

    def __init__(self, path: str, source: bytes) -> None:
        self.sites: list[Site] = []
        self._path = path
        self._source = source
        self._spans = Spans(source)
        self._scope: tuple[str, ...] = ()
        self._is_run = False
        self._count: Counter[tuple[str, str]] = Counter()
        self.visit(ast.parse(source))

    def _operator(self, left: ast.expr, right: ast.expr) -> tuple[int, int, str] | None:
        """Where the operator between two operands is, and what it says; None beside a comment."""
        start, end = self._spans.of(left)[1], self._spans.of(right)[0]
        between = self._source[start:end].decode()
        found = re.search(r"not\s+in|is\s+not|\w+|[=!<>+-]=?", between)
        if "#" in between or found is None or not between.isascii():
            return None
        return start + found.start(), start + found.end(), " ".join(found[0].split())

    def _note(self, kind: str, *edits: tuple[int, int, str]) -> None:
        scope = ".".join(self._scope) or MODULE
        number = self._count[scope, kind]
        self._count[scope, kind] += 1
        self.sites.append(Site(self._path, scope, kind, number, tuple(Edit(*edit) for edit in edits)))

    def _note_operator(self, kind: str, left: ast.expr, right: ast.expr, others: dict[str, str]) -> None:
        found = self._operator(left, right)
        if found is not None and found[2] in others:
            self._note(kind, (found[0], found[1], others[found[2]]))

    # Scopes, and what is left out.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within(node.name, node.body, is_run=self._is_run)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]:
            self.visit(default)
        if node.name not in _TEXTS_OF:
            self._within(node.name, node.body, is_run=True)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # as the visitor calls it

    def _within(self, name: str, body: list[ast.stmt], *, is_run: bool) -> None:
        outer = self._scope, self._is_run
        self._scope, self._is_run = (*self._scope, name), is_run
        self._statements(body)
        for statement in body:
            self.visit(statement)
        self._scope, self._is_run = outer

    def _left_out(self, node: ast.AST) -> None:
        """Texts of errors, what narrows types, and parts of strings, which have no exact place."""

    visit_Raise = visit_Assert = visit_JoinedStr = _left_out  # noqa: N815  # likewise

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and "TypeAlias" not in ast.dump(node.annotation):
            self._value(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._spans.text(node.targets[0]) != "__all__":
            self._value(node.value)

    def _value(self, value: ast.expr) -> None:
        if self._is_run or not is_text(value):
            self.visit(value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if last_name(node.value) not in _TYPES:
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # what is zipped is as long
            self.visit(node.value)

    # Expressions.

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in pairwise([node.left, *node.comparators]):
            self._note_operator("comparison", left, right, _NEGATED)
            self._note_operator("boundary", left, right, _BOUNDARY)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and any(_is_number(side) for side in (node.left, node.right)):
            self._note_operator("boundary", node.left, node.right, _BOUNDARY)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = "or" if isinstance(node.op, ast.And) else "and"
        places = [self._operator(*pair) for pair in pairwise(node.values)]
        if all(places):
            start, end = self._spans.of(node)
            swaps = [(place[0], place[1], word) for place in places if place is not None]
            self._note("logic", (start, start, "("), *swaps, (end, end, ")"))
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.IfExp | ast.While) -> None:
        test = node.test
        start, end = self._spans.of(test)
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._note("condition", (start, self._spans.of(test.operand)[0], self._opened(test)))
        elif not isinstance(test, ast.Compare | ast.Constant | ast.NamedExpr):
            self._note("condition", (start, start, "(not ("), (end, end, "))"))
        self.generic_visit(node)

    visit_If = visit_IfExp = visit_While = _condition  # noqa: N815  # likewise

    def _opened(self, node: ast.UnaryOp) -> str:
        """Parentheses that open between ``not`` and its operand."""
        return "(" * self._source[self._spans.of(node)[0] : self._spans.of(node.operand)[0]].count(b"(")

    def visit_Call(self, node: ast.Call) -> None:
        name = last_name(node.func)
        if is_log(node.func) or name.endswith(("Error", "Warning")) or name in _TYPES:
            return
        first = node.args[:2]
        if len(first) == 2 and name not in _UNORDERED:
            texts = [self._spans.text(one) for one in first]
            if texts[0] != texts[1] and not any(isinstance(one, ast.GeneratorExp | ast.Starred) for one in first):
                self._note("arguments", (*self._spans.of(first[0]), texts[1]), (*self._spans.of(first[1]), texts[0]))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        other = _other_constant(node.value)
        if other and self._spans.text(node)[:1] not in {"r", "R"}:
            self._note("constant", (*self._spans.of(node), other))

    # Statements.

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if self._is_run and isinstance(call, ast.Call) and not is_log(call.func):
            kind = "call" if call is node.value else "await"
            self._note(kind, (*self._spans.of(node), "pass"))
        self.generic_visit(node)

    def _statements(self, body: list[ast.stmt]) -> None:
        """Swaps of simple statements that stand one after the other, in these and in the blocks within."""
        for one, other in pairwise(body):
            if self._is_run and is_ordered(one, other):
                self._note(
                    "statements",
                    (*self._spans.of(one), self._spans.text(other)),
                    (*self._spans.of(other), self._spans.text(one)),
                )
        for statement in body:
            if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
                for block in blocks_of(statement):
                    self._statements(block)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _other_constant(value: object) -> str:
    """What a constant becomes; empty when it stays."""
    match value:
        case bool():
            return str(not value)
        case int():
            return str(value + 1)
        case float():
            return str(value * 2 or 1.0)
        case bytes():
            return repr(value + b"x")
        case str() if not re.search(r"\s", value) and value not in _ENCODINGS:
            return repr(value + "x")
    return ""
