"""`SymbolicModel`: a mechanism written down in symbols, as the arrays and functions that a stepper asks for.

Expressions become Python source with their common subexpressions shared, that source a function of jax.numpy. What
steppers need of derivatives beyond the equations' own is left to automatic differentiation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy.printing.numpy import JaxPrinter

from mechid.compile import register, require_float64
from mechid.dynamics.contacts import Contacts, Stops
from mechid.dynamics.dry import DryRows
from mechid.dynamics.loops import Attached
from mechid.dynamics.model import Hessians, Terms
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.model.symbolic.expressions import TIME, Expression, sm
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.model.system import Lowered


class _Printer(JaxPrinter):
    """Whole powers as products and quotients, whose slopes exist at zero."""

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.base, expr.exp
        inner = self._print(base)
        if power.is_Integer:
            n = abs(int(power))
            raised = f"({inner})" if n == 1 else f"({inner})**{n}"
            return raised if power > 0 else f"1.0/({raised})"
        if abs(power) == sm.Rational(1, 2):
            root = f"jax.numpy.sqrt({inner})"
            return root if power > 0 else f"1.0/({root})"
        return f"({inner})**({self._print(power)})"

    def _print_Integer(self, expr: Any) -> str:
        return str(int(expr)) if abs(expr) < 2**53 else repr(float(expr))

    def _print_DiracDelta(self, expr: Any) -> str:
        """The slope of a jump, where it does not jump."""
        return "0.0"


class Program:
    """A function of (q, v, a, u, t, θ) made of expressions, known by its source."""

    def __init__(
        self, m: SymbolicMechanism, expressions: Sequence[Expression], shape: tuple[int, ...]
    ) -> None:
        s = m.symbols
        places = {x: sm.Symbol(f"{k}_{i}") for k in "qvau" for i, x in enumerate(getattr(s, k))}
        places |= {x: sm.Symbol(f"p_{i}") for i, x in enumerate(s.theta)} | {TIME: sm.Symbol("t_0")}
        shared, out = sm.cse(list(expressions), symbols=sm.numbered_symbols("x_"))
        used = set().union(*(e.free_symbols for _, e in shared), *(e.free_symbols for e in out))
        printer: Any = _Printer({"fully_qualified_modules": True})
        lines = ["def program(q, v, a, u, t, p):"]
        for x, name in places.items():
            if x in used:
                letter, _, i = name.name.partition("_")
                lines.append(f"    {name} = {'t' if letter == 't' else f'{letter}[{i}]'}")
        lines += [f"    {name} = {printer.doprint(e.xreplace(places))}" for name, e in shared]
        entries = "".join(f"{printer.doprint(e.xreplace(places))}, " for e in out)
        lines.append(f"    return ({entries})")
        self.source = "\n".join(lines)
        self.shape = shape
        space: dict[str, Any] = {"jax": jax, "functools": functools}
        exec(compile(self.source, "<symbols>", "exec"), space)
        self._program = space["program"]

    def __call__(self, q: Any, v: Any, a: Any, u: Any, t: Any, p: Any) -> Array:
        if not np.prod(self.shape):
            return jnp.zeros(self.shape)
        values = self._program(q, v, a, u, t, p)
        return jnp.stack([jnp.asarray(x, float) for x in values]).reshape(self.shape)

    def __hash__(self) -> int:
        return hash((self.source, self.shape))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and (self.source, self.shape) == (other.source, other.shape)


class Code:
    """All programs of a mechanism; each is made when it is first asked for."""

    def __init__(self, m: SymbolicMechanism) -> None:
        self.mechanism = m
        s = m.symbols
        self.nq, self.nu = len(s.q), len(s.u)
        self.nc, self.nr = len(m.constraints), len(m.rolling)
        self.revolute = tuple(c.revolute for c in m.coordinates)
        self._made: dict[str, Program] = {}

    def __getattr__(self, name: str) -> Program:
        if name.startswith("_") or name not in PROGRAMS:
            raise AttributeError(name)
        if name not in self._made:
            self._made[name] = PROGRAMS[name](self.mechanism)
        return self._made[name]

    @cached_property
    def momenta_are_inertial(self) -> bool:
        """Whether ∂L/∂q̇ = M(q, θ) q̇, without terms of its own and without time."""
        m, s = self.mechanism, self.mechanism.symbols
        still = dict.fromkeys(s.v, sm.Integer(0))
        at_rest = [sm.expand(m.lagrangian.diff(v).xreplace(still)) for v in s.v] if m.lagrangian else []
        return not m.mass_matrix.has(TIME) and all(e == 0 for e in at_rest)

    @property
    def key(self) -> Any:
        return (self.balance, self.closure, self.roll, self.mechanism.lagrangian, self.revolute)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Code) and self.key == other.key)


def _first(m: SymbolicMechanism) -> Program:
    """∂L/∂q, ∂L/∂v and the force, one row each."""
    L, s = m.lagrangian, m.symbols
    assert L is not None
    rows = [*(L.diff(q) for q in s.q), *(L.diff(v) for v in s.v), *m.forces]
    return Program(m, rows, (3, len(s.q)))


def _energy(m: SymbolicMechanism) -> Program:
    """Kinetic and potential energy; NaN for what depends on time, which who asks does not tell."""
    s, L = m.symbols, m.lagrangian
    if L is None:
        v = sm.Matrix(list(s.v))
        kinetic, rest = (v.T * m.mass_matrix * v)[0] / 2, sm.nan
    else:
        rest = -L.xreplace(dict.fromkeys(s.v, sm.Integer(0)))
        kinetic = sum((L.diff(v) * v for v in s.v), sm.Integer(0)) - L - rest
    known = [sm.nan if m.mass_matrix.has(TIME) else kinetic, sm.nan if rest.has(TIME) else rest]
    return Program(m, known, (2,))


def _slopes(m: SymbolicMechanism, rows: Sequence[Any], by: Sequence[Any]) -> Program:
    found = [r.value.diff(x) for r in rows for x in by]
    return Program(m, found, (len(rows), len(by)))


PROGRAMS: dict[str, Callable[[SymbolicMechanism], Program]] = {
    "balance": lambda m: Program(m, m.balance, (len(m.coordinates),)),
    "mass": lambda m: Program(m, list(m.mass_matrix), (len(m.coordinates),) * 2),
    "first": _first,
    "energy": _energy,
    "closure": lambda m: Program(m, [c.value for c in m.constraints], (len(m.constraints),)),
    "closure_slope": lambda m: _slopes(m, m.constraints, m.symbols.q),
    "roll": lambda m: Program(m, [c.value for c in m.rolling], (len(m.rolling),)),
    "roll_slope": lambda m: _slopes(m, m.rolling, m.symbols.v),
}


_NONE = np.zeros(0)
_NOTHING = Attached(np.zeros(0, int), np.zeros((0, 3)))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class SymbolicModel:
    """A symbolic mechanism with its numbers; answers what `Model` asks."""

    values: Array
    code: Code

    # Sizes

    @property
    def nq(self) -> int:
        return self.code.nq

    @property
    def nc(self) -> int:
        return self.code.nc

    @property
    def nr(self) -> int:
        return self.code.nr

    @property
    def nu(self) -> int:
        return self.code.nu

    @property
    def driven(self) -> Any:
        return np.zeros(0, int)

    @property
    def revolute(self) -> Any:
        return np.array(self.code.revolute, float)

    @property
    def dry(self) -> DryRows:
        return DryRows(np.zeros(0, int), np.zeros((0, 6)), _NONE, _NONE, np.zeros(0, int))  # type: ignore[arg-type]

    @property
    def contacts(self) -> Contacts:
        return Contacts(_NOTHING, _NOTHING, _NOTHING, _NONE, _NONE, _NONE)  # type: ignore[arg-type]

    @property
    def stops(self) -> Stops:
        return Stops(np.zeros(0, int), _NONE, _NONE, _NONE, _NONE)  # type: ignore[arg-type]

    @property
    def momenta_are_inertial(self) -> bool:
        """Whether they are M(q) q'."""
        return self.code.momenta_are_inertial

    @property
    def has_lagrangian(self) -> bool:
        return self.code.mechanism.lagrangian is not None

    # Equations

    def _at(self, program: str, q: Any, v: Any = None, a: Any = None, u: Any = None, t: Any = 0.0) -> Array:
        return getattr(self.code, program)(q, v, a, u, t, self.values)

    def force_balance(self, q: Array, v: Array, a: Array, u: Array, t: Array) -> Array:
        return self._at("balance", q, v, a, u, t)

    def mass_matrix(self, q: Array, t: Any = 0.0) -> Array:
        return self._at("mass", q, t=t)

    def places(self, *configurations: Array) -> list[Any]:
        return [None] * len(configurations)

    def _first(self, q: Array, v: Array, u: Array, t: Array) -> Array:
        if not self.has_lagrangian:
            raise MechidError(
                f"Mechanism '{self.code.mechanism.name}' is given by its equations of motion, not by a Lagrangian, "
                "which this needs: use BDF or OneStep, and sensors of positions and rates."
            )
        return self._at("first", q, v, None, u, t)

    def terms(self, q: Array, v: Array, u: Array, t: Array) -> Terms:
        return Terms(*self._first(q, v, u, t))

    def terms_and_hessians(
        self, q: Array, v: Array, u: Array, t: Array, at: Any = None
    ) -> tuple[Terms, Callable[[], Hessians]]:
        def hessians() -> Hessians:
            by_q, by_v, by_u = jax.jacfwd(self._first, argnums=(0, 1, 2))(q, v, u, t)
            return Hessians(by_q[0], by_q[1], by_v[1], by_q[2], by_v[2], by_u[2])

        return self.terms(q, v, u, t), hessians

    def energy(self, q: Array, v: Array) -> tuple[Array, Array]:
        kinetic, potential = self._at("energy", q, v)
        return kinetic, potential

    # Constraints

    def constraint(self, q: Array, u: Array, at: Any = None) -> tuple[Array, Array]:
        return self._at("closure", q), self._at("closure_slope", q)

    def constraint_input_slope(self) -> Array:
        return jnp.zeros((self.nc, self.nu))

    def constraint_hessian(self, q: Array, weights: Array, at: Any = None) -> Array:
        return jax.jacfwd(lambda x: weights @ self._at("closure_slope", x))(q)

    def rolling(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        """c(q, v) and ∂c/∂v."""
        return self._at("roll", q, v, t=t), self._at("roll_slope", q, v, t=t)

    # What sensors see

    def frame_poses(self, q: Array) -> Array:
        return jnp.eye(4)[None]

    def frame_twists(self, q: Array, v: Array) -> Array:
        return jnp.zeros((1, 6))


register(SymbolicModel, ["values"], ["code"])


@dataclass(frozen=True, eq=False)
class SymbolicOutput:
    """Outputs of a symbolic mechanism; those in rad are compared the short way round."""

    turns: Any
    program: Program
    rates: bool

    def predict(self, observation: Any, model: Any) -> Array:
        o = observation
        return self.program(o.q, o.v if self.rates else None, None, o.u, o.t, model.values)

    def difference(self, predicted: Array, measured: Array) -> Array:
        gap = predicted - measured
        return jnp.where(self.turns, jnp.arctan2(jnp.sin(gap), jnp.cos(gap)), gap)


register(SymbolicOutput, ["turns"], ["program", "rates"])


def symbolic_output(mechanism: SymbolicMechanism, *names: str) -> SymbolicOutput:
    """A sensor that shows outputs of a symbolic mechanism by name."""
    if not isinstance(mechanism, SymbolicMechanism):
        raise MechidError(f"Only symbolic mechanisms have outputs; '{mechanism.name}' has joints and frames.")
    if not names:
        raise MechidError("A sensor of outputs needs the name of at least one.")
    chosen = [mechanism.output(n) for n in names]
    program = Program(mechanism, [o.value for o in chosen], (len(chosen),))
    rates = any(o.value.has(*mechanism.symbols.v) for o in chosen)
    return SymbolicOutput(np.array([o.unit == "rad" for o in chosen]), program, rates)


class SymbolicLowering(Lowered):
    """The numbers of a symbolic mechanism, and its programs."""

    def __init__(self, mechanism: SymbolicMechanism) -> None:
        require_float64()
        self.mechanism = mechanism
        self.layout = mechanism.layout
        self.values = mechanism.values
        if "_code" not in vars(mechanism):
            vars(mechanism)["_code"] = Code(mechanism)
        self.code: Code = vars(mechanism)["_code"]

    def model(self, values: Any = None) -> SymbolicModel:
        return SymbolicModel(self.values if values is None else values, self.code)  # type: ignore[arg-type]

    def tangent(self, values: np.ndarray, slopes: np.ndarray) -> list[Any]:
        return [slopes]
