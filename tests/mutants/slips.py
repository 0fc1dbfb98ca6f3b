"""Faults of meaning: one item of several, zero for none, one total, one kind of failure, the wrong end.

Earlier series of planted faults survived most often with these shapes. Each operator gives the name of the fault, the
node that it replaces and the text that takes its place, as the operators of ``tests/mutants/operators.py`` do.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Edit = tuple[str, ast.AST, str]
#: Methods that change places: the other end of a text or a sequence, or the other half of a set.
OTHER_END = {
    "appendleft": "append",
    "difference": "intersection",
    "endswith": "startswith",
    "intersection": "union",
    "lstrip": "rstrip",
    "partition": "rpartition",
    "popleft": "pop",
    "removeprefix": "removesuffix",
    "removesuffix": "removeprefix",
    "rpartition": "partition",
    "rsplit": "split",
    "rstrip": "lstrip",
    "startswith": "endswith",
    "union": "intersection",
}
HALVES: dict[type[ast.operator], type[ast.operator]] = {
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


def _changed(node: Node, **fields: object) -> Node:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def one_of_several(node: ast.AST) -> Iterator[Edit]:
    """A loop or a comprehension sees its first item alone, or all items but the last."""
    if isinstance(node, ast.For) or (isinstance(node, ast.comprehension) and not node.is_async):
        for part in ("[:1]", "[:-1]"):
            yield "some items", node.iter, f"list({ast.unparse(node.iter)}){part}"


def zero_for_none(node: ast.AST) -> Iterator[Edit]:
    """``is None`` becomes ``not``, ``is not None`` becomes the value; ``a or b`` keeps a false ``a`` that is there."""
    match node:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            yield "zero for none", node, f"(not {ast.unparse(left)})"
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            yield "zero for none", node, f"bool({ast.unparse(left)})"
        case ast.BoolOp(op=ast.Or(), values=[ast.Name() | ast.Attribute() as one, other]):
            kept = ast.unparse(one)
            yield "zero for none", node, f"({ast.unparse(other)} if {kept} is None else {kept})"


def last_one_wins(node: ast.AST) -> Iterator[Edit]:
    """A sum or a union keeps its newest part alone; an entry that is there is replaced, or is not replaced."""
    match node:
        case ast.AugAssign(op=ast.Add() | ast.BitOr() | ast.Sub(), target=target, value=value):
            yield "last one wins", node, f"{ast.unparse(target)} = {ast.unparse(value)}"
        case ast.Call(func=ast.Attribute(value=owner, attr="setdefault"), args=[key, value]):
            at = f"{ast.unparse(owner)}.update({{{ast.unparse(key)}: {ast.unparse(value)}}})"
            yield "last one wins", node, f"({at}, {ast.unparse(owner)}[{ast.unparse(key)}])[1]"
        case ast.Assign(targets=[ast.Subscript(slice=at, value=owner)], value=value) if not (
            any(isinstance(one, ast.Slice) for one in ast.walk(at))
        ):
            first = f"{ast.unparse(owner)}.setdefault({ast.unparse(at)}, {ast.unparse(value)})"
            yield "first one wins", node, first


def narrow_handler(node: ast.AST) -> Iterator[Edit]:
    """An ``except`` forgets one of its kinds; a ``finally`` runs only after success."""
    if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
        kinds = node.type.elts
        for n in range(len(kinds)):
            rest = _changed(node.type, elts=[*kinds[:n], *kinds[n + 1 :]])
            yield "narrow handler", node.type, ast.unparse(rest)
    if isinstance(node, ast.Try) and node.finalbody and not node.handlers:
        lines = [*node.body, *node.orelse, *node.finalbody]
        yield "finally", node, "\n".join(ast.unparse(one) for one in lines)


def other_end(node: ast.AST) -> Iterator[Edit]:
    """The other end of a text or a list, the other half of a set, the other of two values, the other way out."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in OTHER_END and node.args:
            method = _changed(called, attr=OTHER_END[name])
            yield "other end", called, ast.unparse(method)
        case ast.Call(func=ast.Name(id="sorted"), args=[items]):
            yield "other end", node, f"list({ast.unparse(items)})"
            yield "other end", node, f"{ast.unparse(node)}[::-1]"
        case ast.IfExp(body=body, orelse=other):
            yield "other end", node, ast.unparse(_changed(node, body=other, orelse=body))
        case ast.Break():
            yield "other end", node, "continue"
        case ast.Continue():
            yield "other end", node, "break"
        case ast.Dict(keys=keys, values=values) if len(keys) == 2 and None in keys:
            turned = _changed(node, keys=keys[::-1], values=values[::-1])
            yield "other end", node, ast.unparse(turned)
        case ast.BinOp(op=op) if type(op) in HALVES:
            yield "other end", node, f"({ast.unparse(_changed(node, op=HALVES[type(op)]()))})"


def swapped_arguments(node: ast.AST) -> Iterator[Edit]:
    """The first two arguments of a call change places, not where their order makes no difference."""
    match node:
        case ast.Call(func=ast.Name(id="min" | "max" | "zip")):
            return
        case ast.Call(args=[first, second, *rest]):
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                turned = _changed(node, args=[second, first, *rest])
                yield "swapped arguments", node, ast.unparse(turned)


SLIPS: tuple[Callable[[ast.AST], Iterator[Edit]], ...] = (
    one_of_several,
    zero_for_none,
    last_one_wins,
    narrow_handler,
    other_end,
    swapped_arguments,
)
