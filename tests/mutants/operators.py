"""The small faults that can be made in the functions of one source file, found in its syntax tree.

Each fault is one replacement of a span of the text, so that all other lines stay as they are. Texts of log
lines, annotations, docstrings, assertions and blocks under ``if TYPE_CHECKING`` are left alone: no behaviour
that a test should state depends on them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from tests.mutants.slips import SLIPS

#: Receivers of log lines.
LOGGERS = frozenset({"logger", "log"})
#: Calls whose arguments are types, texts or a pause without a reason.
SPARED = frozenset({"isinstance", "issubclass", "cast", "get_logger", "asyncio.sleep"})
#: Keyword arguments that decide nothing while everything else is right.
OF_STYLE = frozenset({"strict", "name", "exc_info", "stacklevel"})
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ADDED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Fields of a node that hold types.
TYPES = frozenset({"annotation", "returns", "decorator_list", "type"})
#: Statements without a block of their own.
SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)

Node = TypeVar("Node", bound=ast.AST)
#: A node's replacement: the name of the operator, the node, the text that takes its place.
Edit = tuple[str, ast.AST, str]


@dataclass(frozen=True)
class Mutation:
    """One fault: ``old`` and ``new`` are the lines that change, with single spaces; ``source`` is the whole file.

    ``key`` has no line number, so that it stays the same when the code around it changes.
    """

    file: str
    function: str
    line: int
    operator: str
    old: str
    new: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same in every revision in which this function has these lines."""
        return self.file, self.function, self.old, self.new


def mutations(file: str, source: str) -> tuple[Mutation, ...]:
    """Each fault that can be made in the functions of ``source``, once, in the order of their lines."""
    text = _Text(source)
    found: dict[tuple[int, int, str], Mutation] = {}
    for function, body in _functions(ast.parse(source)):
        for operator, node, new in _edits(body):
            begin, end = text.span(node)
            if text.raw[begin:end] != new.encode():
                fault = text.replaced(file, function, node, operator, new)
                found.setdefault((begin, end, new), fault)
    return tuple(sorted(found.values(), key=lambda one: (one.line, one.operator, one.new)))


class _Text:
    """A source and where its nodes stand in it; positions are counted in bytes, as ``ast`` does."""

    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        self._begins = [0]
        for line in self.raw.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        first, last = (node[0], node[-1]) if isinstance(node, _Run) else (node, node)
        return (
            self._begins[first.lineno - 1] + first.col_offset,
            self._begins[last.end_lineno - 1] + last.end_col_offset,
        )

    def replaced(
        self, file: str, function: str, node: ast.AST, operator: str, new: str
    ) -> Mutation:
        begin, end = self.span(node)
        first = self.raw.rfind(b"\n", 0, begin) + 1
        last = self.raw.find(b"\n", end)
        last = len(self.raw) if last < 0 else last
        column = len(self.raw[first:begin]) - len(self.raw[first:begin].lstrip())
        put = new.replace("\n", "\n" + " " * column).encode()
        source = self.raw[:begin] + put + self.raw[end:]
        return Mutation(
            file=file,
            function=function,
            line=self.raw.count(b"\n", 0, begin) + 1,
            operator=operator,
            old=" ".join(self.raw[first:last].decode().split()),
            new=" ".join((self.raw[first:begin] + put + self.raw[end:last]).decode().split()),
            source=source.decode(),
        )


class _Run(ast.AST, Sequence[ast.stmt]):
    """Neighbouring statements of one block, replaced together."""

    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        super().__init__()
        self._statements = statements

    def __getitem__(self, index: int) -> ast.stmt:  # type: ignore[override]
        return self._statements[index]

    def __len__(self) -> int:
        return len(self._statements)


def _functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Qualified name and node of each outermost function; those within it belong to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        name = f"{inside}.{node.name}" if inside and hasattr(node, "name") else ""
        name = name or getattr(node, "name", inside)
        if isinstance(node, FUNCTIONS):
            yield name, node
        elif isinstance(node, ast.stmt):
            yield from _functions(node, name)


def _edits(function: ast.AST) -> Iterator[Edit]:
    for node in _code(function):
        for operator in OPERATORS:
            yield from operator(node)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below that decide what the program does."""
    yield node
    for child in _children(node):
        if not _is_set_aside(child):
            yield from _code(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        # The order of a tuple that is written out does not matter to ``in``.
        yield from (node.left, *(one for one in node.comparators if not isinstance(one, ast.Tuple)))
        return
    for name, value in ast.iter_fields(node):
        if name not in TYPES:
            values = value if isinstance(value, list) else [value]
            yield from (one for one in values if isinstance(one, ast.AST))


def _is_set_aside(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in OF_STYLE
    return isinstance(node, ast.Assert | ast.JoinedStr) or _is_log(node) or _is_spared(node)


def _is_log(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return ast.unparse(node.func.value).rpartition(".")[2] in LOGGERS


def _is_spared(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in SPARED


def _changed(node: Node, **fields: object) -> Node:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _bracketed(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


# -- operators on expressions


def comparison(node: ast.AST) -> Iterator[Edit]:
    """``<`` and ``<=``, ``==`` and ``!=``, ``in`` and ``not in``, ``is`` and ``is not`` change places."""
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            ops = [*node.ops[:n], COMPARED[type(op)](), *node.ops[n + 1 :]]
            yield "comparison", node, _bracketed(_changed(node, ops=ops))


def connective(node: ast.AST) -> Iterator[Edit]:
    """``and`` and ``or`` change places."""
    if isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", node, _bracketed(_changed(node, op=op))


def negation(node: ast.AST) -> Iterator[Edit]:
    """A condition is negated, or its ``not`` is dropped; one operand of ``and`` or ``or`` is forgotten."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
            yield "negation", test, _bracketed(ast.UnaryOp(ast.Not(), test))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", node, _bracketed(node.operand)
    if isinstance(node, ast.BoolOp):
        for n in range(len(node.values)):
            rest = [*node.values[:n], *node.values[n + 1 :]]
            less = rest[0] if len(rest) == 1 else _changed(node, values=rest)
            yield "operand dropped", node, _bracketed(less)


def number(node: ast.AST) -> Iterator[Edit]:
    """A whole number is off by one."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for value in (node.value + 1, node.value - 1):
            yield "number", node, str(value) if value >= 0 else f"({value})"


def sign(node: ast.AST) -> Iterator[Edit]:
    """``+`` and ``-`` change places, not where texts or lists are joined."""
    joined = (ast.JoinedStr, ast.List, ast.Tuple)
    if isinstance(node, ast.BinOp) and type(node.op) in ADDED:
        for side in (node.left, node.right):
            if isinstance(side, joined) or isinstance(getattr(side, "value", 0), str | bytes):
                return
        yield "sign", node, _bracketed(_changed(node, op=ADDED[type(node.op)]()))
    if isinstance(node, ast.AugAssign) and type(node.op) in ADDED:
        yield "sign", node, ast.unparse(_changed(node, op=ADDED[type(node.op)]()))


def extreme(node: ast.AST) -> Iterator[Edit]:
    """``min`` and ``max``, ``any`` and ``all`` change places."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLED:
        yield "min/max", node.func, CALLED[node.func.id]


def flag(node: ast.AST) -> Iterator[Edit]:
    """``True`` and ``False`` change places."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "flag", node, str(not node.value)


def argument(node: ast.AST) -> Iterator[Edit]:
    """A keyword argument is forgotten."""
    if isinstance(node, ast.Call):
        for n, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in OF_STYLE:
                rest = [*node.keywords[:n], *node.keywords[n + 1 :]]
                yield "argument", node, ast.unparse(_changed(node, keywords=rest))


def order(node: ast.AST) -> Iterator[Edit]:
    """Two neighbours in a tuple change places."""
    if (
        isinstance(node, ast.Tuple)
        and isinstance(node.ctx, ast.Load)
        and not any(isinstance(one, ast.Slice) for one in node.elts)
    ):
        for n in range(len(node.elts) - 1):
            elements = [*node.elts[:n], node.elts[n + 1], node.elts[n], *node.elts[n + 2 :]]
            yield "order", node, ast.unparse(_changed(node, elts=elements))


# -- operators on statements


def removal(node: ast.AST) -> Iterator[Edit]:
    """A call, an ``await``, a ``del`` or an assignment to an attribute or an item is forgotten."""
    for statement in (one for block in _blocks(node) for one in block):
        if _is_effect(statement):
            yield "removal", statement, "pass"


def early_end(node: ast.AST) -> Iterator[Edit]:
    """A ``return``, ``continue``, ``break`` or ``raise`` below a condition or a loop is forgotten."""
    if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.Try):
        for statement in (one for block in _blocks(node) for one in block):
            if isinstance(statement, ast.Return | ast.Continue | ast.Break | ast.Raise):
                yield "early end", statement, "pass"


def handler(node: ast.AST) -> Iterator[Edit]:
    """The block of an ``except`` or a ``finally`` does nothing."""
    blocks = []
    if isinstance(node, ast.ExceptHandler):
        blocks = [node.body]
    elif isinstance(node, ast.Try) and node.finalbody:
        blocks = [node.finalbody]
    for block in blocks:
        if not all(isinstance(one, ast.Pass) or _is_log(one) for one in block):
            yield "handler", _Run(block), "pass"


def succession(node: ast.AST) -> Iterator[Edit]:
    """A statement with an ``await`` comes after the next one instead of before, or the next one before it."""
    for block in _blocks(node):
        for first, second in pairwise(block):
            if not (isinstance(first, SIMPLE) and isinstance(second, SIMPLE)):
                continue
            effects = _is_effect(first) and _is_effect(second)
            if effects and (_awaits(first) or _awaits(second)):
                both = f"{ast.unparse(second)}\n{ast.unparse(first)}"
                yield "succession", _Run([first, second]), both


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block


def _is_effect(statement: ast.stmt) -> bool:
    if _is_log(statement):
        return False
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
            return True
        case ast.Assign(targets=targets):
            return any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets)
        case ast.AugAssign(target=target):
            return isinstance(target, ast.Attribute | ast.Subscript)
    return False


def _awaits(statement: ast.stmt) -> bool:
    return any(isinstance(one, ast.Await) for one in ast.walk(statement))


OPERATORS: tuple[Callable[[ast.AST], Iterator[Edit]], ...] = (
    comparison,
    connective,
    negation,
    number,
    sign,
    extreme,
    flag,
    argument,
    order,
    removal,
    early_end,
    handler,
    succession,
    *SLIPS,
)
