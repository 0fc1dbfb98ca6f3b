"""The part of PromQL that the alert rules use, over made-up scrapes; parsed by promql-parser.

A scrape is (seconds, {(name, frozenset of label pairs): value}). Only series of the last scrape are
present.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import promql_parser

Labels: TypeAlias = frozenset[tuple[str, str]]
Scrape: TypeAlias = tuple[float, Mapping[tuple[str, Labels], float]]
Vector: TypeAlias = dict[Labels, float]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}
_MATCH: dict[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": operator.eq,
    "MatchOp.Re": lambda value, wanted: bool(re.fullmatch(wanted, value)),
    "MatchOp.NotRe": lambda value, wanted: not re.fullmatch(wanted, value),
}


def evaluate(text: str, scrapes: Sequence[Scrape]) -> Vector:
    """Return the instant vector of ``text`` at the time of the last scrape."""
    found = _Evaluation(scrapes).of(promql_parser.parse(text))
    assert isinstance(found, dict), text
    return found


class _Evaluation:
    def __init__(self, scrapes: Sequence[Scrape]) -> None:
        self.scrapes = scrapes
        self.now = scrapes[-1][0]

    def of(self, node: Any) -> Any:
        return getattr(self, "_of_" + type(node).__name__)(node)

    def _of_NumberLiteral(self, node: Any) -> float:  # noqa: N802
        return float(node.val)

    def _of_ParenExpr(self, node: Any) -> Any:  # noqa: N802
        return self.of(node.expr)

    def _of_VectorSelector(self, node: Any) -> Vector:  # noqa: N802
        return _selected(node, self.scrapes[-1])

    def _of_Call(self, node: Any) -> Vector:  # noqa: N802
        (matrix,) = node.args
        since = self.now - matrix.range.total_seconds()
        values: dict[Labels, list[float]] = {}
        for scrape in self.scrapes:
            if scrape[0] >= since:
                for labels, value in _selected(matrix.vector_selector, scrape).items():
                    values.setdefault(labels, []).append(value)
        by_name: dict[str, Callable[[list[float]], float]] = {
            "increase": lambda seen: seen[-1] - seen[0],
            "last_over_time": lambda seen: seen[-1],
        }
        return {labels: by_name[node.func.name](seen) for labels, seen in values.items()}

    def _of_AggregateExpr(self, node: Any) -> Vector:  # noqa: N802
        groups: dict[Labels, list[float]] = {}
        for labels, value in self.of(node.expr).items():
            groups.setdefault(_only(labels, node.modifier.labels), []).append(value)
        whole = {"sum": sum, "max": max}[str(node.op)]
        return {labels: float(whole(values)) for labels, values in groups.items()}

    def _of_BinaryExpr(self, node: Any) -> Vector:  # noqa: N802
        left, right, op = self.of(node.lhs), self.of(node.rhs), str(node.op)
        if isinstance(right, float):
            return {ls: value for ls, value in left.items() if _COMPARE[op](value, right)}
        if op == "/":
            return {ls: value / right[ls] for ls, value in left.items() if ls in right}
        matched = {_on(node, ls) for ls in right}
        if op == "or":
            return left | {ls: v for ls, v in right.items() if _on(node, ls) not in left}
        wanted = {"and": True, "unless": False}[op]
        return {ls: v for ls, v in left.items() if (_on(node, ls) in matched) is wanted}


def _selected(node: Any, scrape: Scrape) -> Vector:
    found = {}
    for (name, labels), value in scrape[1].items():
        known = dict(labels)
        if name == node.name and all(
            _MATCH[str(m.op)](known.get(m.name, ""), m.value) for m in node.matchers.matchers
        ):
            found[labels] = value
    return found


def _on(node: Any, labels: Labels) -> Labels:
    matching = node.modifier.matching if node.modifier is not None else None
    return labels if matching is None else _only(labels, matching.labels)


def _only(labels: Labels, names: Sequence[str]) -> Labels:
    return frozenset((name, value) for name, value in labels if name in names)
