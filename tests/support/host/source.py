"""Visible effects of the host's methods, from their syntax trees; and whether ours call them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Levels that are not logged by default: such a line is no duty.
_QUIET = frozenset({"debug", "dev"})
#: Calls that resolve a future or end the worker.
_DEEDS = frozenset({"crash", "set_result", "set_exception", "notify"})


def duties_of(function: Any) -> tuple[str, ...]:
    """Return the duties of a host's function, each once, in the order of its source.

    ``calls on_x`` (a signal, a callback, a sensor), ``raises X``, ``asserts X``, ``sets x``,
    ``event x.set``, ``logs X``, ``transaction x``, ``does crash``, ``state X`` (mode shows it while
    the method runs).
    """
    return tuple(dict.fromkeys(_found(tree_of(function))))


def tree_of(function: Any) -> Function:
    """Return the syntax tree of a function, method, property or task of a mode service."""
    plain = inspect.unwrap(_plain(function))
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(plain))).body
    assert isinstance(found, Function), found
    return found


def _plain(made: Any) -> Any:
    for name in ("fget", "__func__", "fun", "func"):
        inner = getattr(made, name, None)
        if inspect.isroutine(inner):
            return _plain(inner) if name == "__func__" else inner
    return made


def _found(node: ast.AST) -> Iterator[str]:
    yield from _of(node)
    for child in ast.iter_child_nodes(node):
        yield from _found(child)


def _of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and "transitions_to" in ast.unparse(decorator):
                    yield f"state {ast.unparse(decorator.args[0])}"
        case ast.Raise(exc=ast.Call(func=raised)) | ast.Raise(exc=ast.expr() as raised):
            yield f"raises {ast.unparse(raised).rpartition('.')[2]}"
        case ast.Assert(test=test):
            yield f"asserts {ast.unparse(test)}"
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _set(target)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target, value=ast.expr()):
            yield from _set(target)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=arguments):
            yield from _called(ast.unparse(owner).rpartition(".")[2], name, arguments)
        case ast.Call(func=ast.Name(id=name)) if name in _DEEDS:
            yield f"does {name}"
        case ast.Attribute(attr=name, ctx=ast.Load()) if name.lstrip("_").startswith("on_"):
            # Not only calls: Faust writes ``T(self.on_x)(...)``.
            yield f"calls {name}"


def _set(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _set(part)
    elif isinstance(target, ast.Attribute):
        yield f"sets {target.attr}"


def _called(owner: str, name: str, arguments: list[ast.expr]) -> Iterator[str]:
    if owner in ("log", "logger"):
        if name not in _QUIET and arguments:
            yield f"logs {_words(arguments[0])}"
    elif name in _DEEDS:
        yield f"does {name}"
    elif name in ("set", "clear"):
        yield f"event {owner}.{name}"
    elif "transaction" in name:
        yield f"transaction {name}"
    elif owner == "monitor" and not name.startswith("on_"):
        yield f"monitor {name}"


def _words(first: ast.expr) -> str:
    """Return the constant beginning of a log line."""
    parts = first.values if isinstance(first, ast.JoinedStr) else [first]
    constant = next((part for part in parts if isinstance(part, ast.Constant)), None)
    said = ast.unparse(first) if constant is None else str(constant.value)
    return " ".join(said.split())[:40].rstrip()


def always_refers(function: Any, original: str) -> bool:
    """Return whether each path through ``function`` without an error refers to ``original``.

    ``original`` is source text: ``super().NAME``, or the parameter or variable that holds the
    original.
    """
    return _always(tree_of(function).body, original)


def _refers(node: ast.AST, original: str) -> bool:
    return any(isinstance(n, ast.expr) and ast.unparse(n) == original for n in ast.walk(node))


def _always(body: list[ast.stmt], original: str) -> bool:
    for statement in body:
        found = _outcome(statement, original)
        if found is not None:
            return found
    return False


def _outcome(statement: ast.stmt, original: str) -> bool | None:
    """True: every path has referred to it; False: some path ends without it; None: undecided."""
    match statement:
        case ast.If(test=test, body=then, orelse=other):
            if _refers(test, original) or (_always(then, original) and _always(other, original)):
                return True
            return (
                False
                if any(_leaves(b) and not _always(b, original) for b in (then, other))
                else None
            )
        case ast.With(items=items, body=inner) | ast.AsyncWith(items=items, body=inner):
            within = _always(inner, original) or any(_refers(item, original) for item in items)
            return True if within else (False if _leaves(inner) else None)
        case ast.Try(body=inner, finalbody=last):
            if _always(inner, original) or _always(last, original):
                return True
            return False if _leaves(inner) else None
        case ast.While(test=ast.Constant(value=True), body=inner):
            return _always(inner, original)
        case ast.For() | ast.AsyncFor() | ast.While():
            return False if _leaves([statement]) else None
        case ast.FunctionDef(body=inner) | ast.AsyncFunctionDef(body=inner):
            # A function that is returned or stored: it is called later.
            return True if _always(inner, original) else None
        case ast.Raise():
            return True
    if _refers(statement, original):
        return True
    return False if isinstance(statement, ast.Return) else None


def _leaves(body: list[ast.stmt]) -> bool:
    """Return whether the statements may return."""
    return any(isinstance(part, ast.Return) for statement in body for part in ast.walk(statement))
