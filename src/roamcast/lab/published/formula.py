"""Arithmetic over the metrics of one run: `path_hops_mean / path_hops_network`. No other code is executed."""

import ast
import operator
from collections.abc import Callable, Collection, Mapping

from roamcast.errors import ScenarioError
from roamcast.explain import shown, unknown
from roamcast.lab.run.metrics import METRICS

LENGTH_MAX = 500  # characters; chosen by us, far above any formula in use
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_ALLOWED = "allowed: metrics, numbers, + - * / and parentheses"


def metrics_in(formula: str, where: str, known: Collection[str] = METRICS) -> list[str]:
    """The metrics that a formula uses, all of them `known`, or a `ScenarioError` that begins with `where`."""
    if len(formula) > LENGTH_MAX:
        raise ScenarioError(where, f"is longer than {LENGTH_MAX} characters, the most allowed")
    try:
        tree = ast.parse(formula.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ScenarioError(where, f"is {shown(formula)}; {_ALLOWED}") from None
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                if name not in known:
                    raise ScenarioError(where, unknown(name, list(known), f"has `{name}`, no metric"))
                names.append(name)
            case ast.Constant(value=bool()):
                raise ScenarioError(where, f"is {shown(formula)}; {_ALLOWED}")
            case ast.Constant(value=int() | float()):
                pass
            case ast.Expression() | ast.BinOp() | ast.operator() | ast.Load():
                if isinstance(node, ast.operator) and type(node) not in _OPERATORS:
                    raise ScenarioError(where, f"is {shown(formula)}; {_ALLOWED}")
            case ast.UnaryOp(op=ast.USub()) | ast.USub():
                pass
            case _:
                raise ScenarioError(where, f"is {shown(formula)}; {_ALLOWED}")
    if not names:
        raise ScenarioError(where, f"is {shown(formula)}, which has no metric; {_ALLOWED}")
    return list(dict.fromkeys(names))


def names_in(formula: str) -> list[str]:
    """The names in a formula that `metrics_in` has checked."""
    tree = ast.parse(formula.strip(), mode="eval")
    return list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def evaluate(formula: str, figures: Mapping[str, float]) -> float | None:
    """The value for one run; None where a metric has no value or the divisor is 0."""
    try:
        return _value(ast.parse(formula.strip(), mode="eval").body, figures)
    except (KeyError, ZeroDivisionError):
        return None


def _value(node: ast.expr, figures: Mapping[str, float]) -> float:
    match node:
        case ast.Name(id=name):
            return figures[name]
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, figures)
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](_value(left, figures), _value(right, figures))
    raise AssertionError(f"metrics_in() let {ast.dump(node)} pass")
