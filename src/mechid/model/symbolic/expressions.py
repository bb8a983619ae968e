"""Texts and SymPy expressions brought to one set of symbols: coordinates s, rates s', accelerations s''.

A text is read by its syntax tree, never evaluated: numbers, names, + − * / ^ and a few functions are all it may
hold. A SymPy expression may use functions of time and their derivatives (`dynamicsymbols`), or plain symbols.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from mechid.errors import MechidError, choices
from mechid.model.symbolic.misread import number_without_use, why_unreadable

sm: Any = sympy
"""SymPy, whose own type hints are incomplete"""
Expression = Any
"""of SymPy"""


def symbol(name: str) -> Expression:
    """The symbol of a name. All are real: |x| has a slope."""
    return sm.Symbol(name, real=True)


TIME = symbol("t")
FUNCTIONS: dict[str, Any] = {
    "sin": sm.sin,
    "cos": sm.cos,
    "tan": sm.tan,
    "asin": sm.asin,
    "acos": sm.acos,
    "atan": sm.atan,
    "atan2": sm.atan2,
    "sinh": sm.sinh,
    "cosh": sm.cosh,
    "tanh": sm.tanh,
    "exp": sm.exp,
    "log": sm.log,
    "sqrt": sm.sqrt,
    "abs": sm.Abs,
    "sign": sm.sign,
}
CONSTANTS = {"pi": sm.pi}
_ALLOWED = (
    *(f for f in FUNCTIONS.values() if isinstance(f, type)),
    *(sm.cot, sm.sec, sm.csc, sm.asinh, sm.acosh, sm.atanh, sm.erf),
    *(sm.Max, sm.Min, sm.Heaviside, sm.Piecewise),
)
"""functions in a SymPy expression"""
_PRIMED = re.compile(r"(?<!\w)((?>[^\W\d]\w*))\s*('{1,3})")
_WORD = re.compile(r"(?<!\w)[^\W\d]\w*")
_MARK = "__rate"
_MEANT = "__name"
"""behind a name that is a word of Python"""
LONGEST = 100_000
"""characters of a text"""
LARGEST_POWER = 100
LARGEST_NUMBER = 1e300


@dataclass(frozen=True)
class Symbols:
    """The symbols of a mechanism, in their order."""

    coordinates: tuple[str, ...]
    parameters: tuple[str, ...]
    inputs: tuple[str, ...]

    @cached_property
    def q(self) -> tuple[Expression, ...]:
        return tuple(symbol(n) for n in self.coordinates)

    @cached_property
    def v(self) -> tuple[Expression, ...]:
        return tuple(symbol(f"{n}'") for n in self.coordinates)

    @cached_property
    def a(self) -> tuple[Expression, ...]:
        return tuple(symbol(f"{n}''") for n in self.coordinates)

    @cached_property
    def u(self) -> tuple[Expression, ...]:
        return tuple(symbol(n) for n in self.inputs)

    @cached_property
    def theta(self) -> tuple[Expression, ...]:
        return tuple(symbol(n) for n in self.parameters)

    @cached_property
    def all(self) -> dict[str, Expression]:
        """Every symbol by its name, time too."""
        every = (*self.q, *self.v, *self.a, *self.u, *self.theta, TIME)
        return {s.name: s for s in every}

    @cached_property
    def _spelled(self) -> dict[str, Expression]:
        """By their names as Python spells them: it takes ϕ for φ."""
        return {unicodedata.normalize("NFKC", name): s for name, s in self.all.items()}

    def expression(self, given: Any, what: str) -> Expression:
        """A text, number or SymPy expression in these symbols."""
        if isinstance(given, str):
            return _real(self._parsed(given, what), what)
        try:
            found = sm.sympify(given, strict=True)
        except (sm.SympifyError, TypeError):
            raise MechidError(
                f"{_begun(what)} must be a text or a SymPy expression, not {given!r}."
            ) from None
        if not isinstance(found, sm.Expr) or isinstance(found, sm.MatrixBase):
            raise MechidError(f"{_begun(what)} must be one expression, not {type(found).__name__}.")
        strange = [f for f in found.atoms(sm.Function) if not isinstance(f, (*_ALLOWED, AppliedUndef))]
        if strange or found.has(sm.Integral, sm.Sum, sm.Product):
            raise MechidError(
                f"{_begun(what)} holds {strange[0] if strange else found}, which is not known here."
            )
        return _real(self._known(self._plain(found, what), what), what)

    def _plain(self, found: Expression, what: str) -> Expression:
        """Functions of time and their derivatives replaced by symbols, and symbols by those of the same name."""
        renamed: dict[Any, Any] = {s: symbol(name_in(s)) for s in found.free_symbols}
        for d in found.atoms(sm.Derivative):
            inner, *by = d.args
            ((variable, order),) = by if len(by) == 1 else ((None, 0),)
            if not isinstance(inner, AppliedUndef) or str(variable) != "t" or int(order) > 2:
                raise MechidError(
                    f"{_begun(what)} holds {d}: only first and second derivatives of coordinates by t."
                )
            renamed[d] = symbol(f"{name_in(inner)}{chr(39) * int(order)}")
        for f in found.atoms(AppliedUndef):
            refuse_no_function_of_time(f, what)
            renamed[f] = symbol(name_in(f))
        return found.xreplace(renamed)

    def _known(self, found: Expression, what: str) -> Expression:
        for s in sorted(found.free_symbols, key=str):
            if s.name not in self.all:
                raise self._stranger(str(s), what)
        return found

    def _stranger(self, name: str, what: str) -> MechidError:
        parts = (("coordinates", self.coordinates), ("parameters", self.parameters), ("inputs", self.inputs))
        valid = "; ".join(f"{kind} {choices(names)}" for kind, names in parts)
        return MechidError(f"'{name}' in {what} is neither coordinate, parameter nor input; valid: {valid}.")

    def _parsed(self, text: str, what: str) -> Expression:
        if len(text) > LONGEST:
            raise MechidError(f"{_begun(what)} has {len(text)} characters; at most {LONGEST} are read.")
        if _MARK in text or _MEANT in text:
            raise MechidError(f"'{_MARK}' and '{_MEANT}' cannot be part of a name in {what}.")
        if useless := number_without_use(text, LARGEST_NUMBER):
            shown = useless if len(useless) < 30 else f"{useless[:29]}…"
            raise MechidError(
                f"{_begun(what)} holds {shown}, a number beyond those that can be used, 1e-300 to 1e300."
            )
        plain = _WORD.sub(lambda m: m[0] + _MEANT * (keyword.iskeyword(m[0]) and m[0] in self.all), text)
        plain = _PRIMED.sub(lambda m: f"{m[1]}{_MARK}{len(m[2])}", plain.replace("^", "**"))
        try:
            if "·" in text and not any("·" in name for name in self.all):
                # Python takes it for a letter
                raise SyntaxError
            # on one line, whatever the text's own
            tree = ast.parse(" ".join(plain.split()), mode="eval")
            return self._tree(tree.body, what)
        except (SyntaxError, UnicodeError, ValueError):
            why = why_unreadable(text, FUNCTIONS)
            raise MechidError(f"{_begun(what)}, '{text}', cannot be read as a formula{why}.") from None
        except (RecursionError, MemoryError):
            raise MechidError(f"{_begun(what)} is nested too deeply.") from None

    def _tree(self, node: ast.expr, what: str) -> Expression:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            if isinstance(node.value, bool):
                raise MechidError(f"'{node.value}' in {what} is no number.")
            return sm.Integer(node.value) if isinstance(node.value, int) else sm.Float(node.value, 17)
        if isinstance(node, ast.Name):
            full = _written(node.id)
            if full in CONSTANTS and full not in self._spelled:
                return CONSTANTS[full]
            if full not in self._spelled:
                raise self._stranger(full, what)
            return self._spelled[full]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self._tree(node.operand, what)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self._tree(node.left, what), self._tree(node.right, what)
            if isinstance(node.op, ast.Pow) and right.is_number and not abs(number(right)) <= LARGEST_POWER:
                power = _written(ast.unparse(node.right))
                raise MechidError(f"{_begun(what)} has a power of {power}; at most {LARGEST_POWER}.")
            found = _OPERATORS[type(node.op)](left, right)
            if found.is_number and not abs(number(found)) <= LARGEST_NUMBER:
                raise MechidError(f"'{_written(ast.unparse(node))}' in {what} is no number that can be used.")
            return found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            name = _written(node.func.id)
            if name in self._spelled:
                raise MechidError(
                    f"'{name}' in {what} is no function: write {name}*(…) for a product with what is in brackets."
                )
            if node.func.id not in FUNCTIONS:
                raise MechidError(
                    f"'{node.func.id}' in {what} is no function that is known; valid: {choices(FUNCTIONS, 20)}."
                )
            if len(node.args) != (2 if node.func.id == "atan2" else 1):
                raise MechidError(
                    f"'{_written(ast.unparse(node))}' in {what} has too many or too few arguments."
                )
            found = FUNCTIONS[node.func.id](*(self._tree(x, what) for x in node.args))
            # at once: functions of functions grow beyond every number
            if found.is_number and not abs(number(_real(found, what))) <= LARGEST_NUMBER:
                raise MechidError(f"'{_written(ast.unparse(node))}' in {what} is no number that can be used.")
            return found
        hint = ": numbers have decimal points" if isinstance(node, ast.Tuple) else ""
        raise MechidError(f"'{_written(ast.unparse(node))}' in {what} is no part of a formula{hint}.")


_OPERATORS: dict[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


def _written(text: str) -> str:
    """A piece of a formula as it was given."""
    plain = text.replace(_MEANT, "").replace(" ** ", "^")
    return re.sub(f"{_MARK}(\\d)", lambda m: "'" * int(m[1]), plain)


def _begun(what: str) -> str:
    return f"{what[0].upper()}{what[1:]}"


def number(found: Expression) -> float:
    """As Python has it; NaN for what is none."""
    try:
        return float(found)
    except (TypeError, OverflowError):
        return math.nan


def as_typed(found: Expression) -> Expression:
    """The same with numbers that print in as few digits as they were given in."""
    return found.xreplace({f: _short(f) for f in found.atoms(sm.Float)})


def _short(given: Expression) -> Expression:
    x = float(given)
    text = f"{x:.15g}"
    exact = abs(float(text) - x) <= 4e-16 * abs(x)
    return sm.Float(text, 15) if exact else sm.Float(repr(x), 17)


def written(found: Expression) -> str:
    """An expression as a text that can be read again."""
    return sm.sstr(as_typed(found), full_prec=False).replace("**", "^")


def _real(found: Expression, what: str) -> Expression:
    for bad in (sm.nan, sm.zoo, sm.oo, -sm.oo, sm.I):
        if found.has(bad):
            raise MechidError(f"{_begun(what)} holds {_NOT_REAL[bad]}.")
    return found


_NOT_REAL = {
    sm.nan: "a number that does not exist, as of 0/0",
    sm.zoo: "a division by zero",
    sm.oo: "an infinite number",
    -sm.oo: "an infinite number",
    sm.I: "a number that is not real",
}


def name_in(given: Any) -> str:
    """The name of a symbol or of a function of time; m_1 where it is written for LaTeX, m_{1}."""
    return plain(given.func.__name__ if isinstance(given, AppliedUndef) else given.name)


def plain(name: str) -> str:
    return re.sub(r"[{}\\]", "", name)


def refuse_no_function_of_time(function: AppliedUndef, what: str) -> None:
    if [str(x) for x in function.args] != ["t"]:
        raise MechidError(
            f"{_begun(what)} holds {function}: a function that is not known here may depend on t alone; write down "
            f"what it is, or name it {name_in(function)}, a parameter."
        )


def name_of(given: Any, what: str) -> str:
    """The name of a symbol, of a function of time, or a name itself."""
    if isinstance(given, str):
        name = plain(given)
    elif isinstance(given, sm.Symbol | AppliedUndef):
        name = name_in(given)
    else:
        raise MechidError(f"{what} is named by a text or a SymPy symbol, not by {given!r}.")
    if not name.isidentifier():
        raise MechidError(f"'{name}' is not a name for {what.lower()}: letters, digits and _ only.")
    if name in FUNCTIONS or name == "t" or _MARK in name or _MEANT in name:
        raise MechidError(f"'{name}' cannot name {what.lower()}: it means something else in a formula.")
    return name


def named(given: Any, what: str) -> dict[str, Any]:
    """Names with what was given for each; a list gives None."""
    if given is None:
        return {}
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    pairs = list(given.items()) if isinstance(given, Mapping) else [(g, None) for g in given]
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = name_of(key, what)
        if name in found:
            raise MechidError(f"{what} '{name}' is given twice.")
        found[name] = value
    return found
