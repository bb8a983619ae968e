"""`SymbolicMechanism`: a mechanism written down in symbols, as M(q, θ) q̈ = h(q, q̇, u, t, θ) (Verhaegen, Eq. 1).

    cart = SymbolicMechanism.from_lagrangian(
        "cart-pendulum",
        "(M + m)/2*s'^2 + m*l*cos(phi)*s'*phi' + m*l^2/2*phi'^2 - m*g*l*cos(phi)",
        coordinates={"s": "m", "phi": "rad"},
        parameters={"M": (1.0, "kg"), "m": (0.3, "kg"), "l": (0.5, "m"), "g": (9.81, "m/s²")},
        inputs={"u": "N"},
        forces={"s": "u"},
    )

A Lagrangian with dissipation and generalized forces, or equations of motion, or an object of
`sympy.physics.mechanics` (`symbolic.methods`), or a text file (`symbolic.files`). Constraints c(q) = 0 may close
loops. Texts and SymPy expressions are taken alike; rates are written s', accelerations s''. SI units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.model.addresses import Address, Layout
from mechid.model.geometry import Array, finite
from mechid.model.symbolic.equations import check_balances, check_inertia, check_used, coefficients
from mechid.model.symbolic.expressions import Expression, Symbols, number, sm, symbol, written
from mechid.model.symbolic.given import (
    Named,
    SymbolicCoordinate,
    equation_of,
    forces_of,
    more_of,
    parts_of,
    rate_of,
    refuse_within,
)
from mechid.model.system import System

if TYPE_CHECKING:
    from mechid.dynamics.symbolic import SymbolicLowering, SymbolicModel
    from mechid.model.symbolic.printing import GeneralForm


@dataclass(frozen=True, eq=False, repr=False)
class SymbolicMechanism(System):
    """Equations in named symbols."""

    name: str
    coordinates: tuple[SymbolicCoordinate, ...]  # type: ignore[assignment]
    parameters: tuple[Named, ...]
    inputs: tuple[Named, ...]
    balance: tuple[Expression, ...]
    """M q̈ − h − (input forces), a row a coordinate: zero along an unconstrained motion"""
    lagrangian: Expression | None = None
    forces: tuple[Expression, ...] = ()
    """generalized forces that are not in the Lagrangian, dissipation among them; N or N·m"""
    constraints: tuple[Named, ...] = ()
    """c(q) = 0"""
    rolling: tuple[Named, ...] = ()
    """c(q, q̇) = 0, linear in q̇, that cannot be had from the constraints on coordinates"""
    outputs: tuple[Named, ...] = ()
    """what sensors may show: expressions of coordinates, rates, inputs, time and parameters"""
    notes: tuple[str, ...] = field(default=())
    delays: Mapping[str, float] = field(default_factory=dict)
    """s, by which inputs act later than they were logged"""

    # Ways to write one down

    @classmethod
    def from_lagrangian(
        cls,
        name: str,
        lagrangian: Any,
        *,
        coordinates: Any,
        parameters: Any,
        constants: Any = None,
        inputs: Any = (),
        forces: Any = None,
        dissipation: Any = 0,
        constraints: Any = None,
        rolling: Any = None,
        outputs: Any = None,
    ) -> SymbolicMechanism:
        """From L(q, q̇, t, θ), J, and what acts besides: d/dt ∂L/∂q̇ − ∂L/∂q = forces − ∂D/∂q̇.

        forces: by coordinate, N or N·m. dissipation: D(q, q̇, θ), W. coordinates, inputs: names with units;
        parameters, and constants, which are known: names with values, or (value, unit). constraints, rolling:
        expressions that vanish, by name or in a list. outputs: expressions, or (expression, unit), by name.
        """
        parts = parts_of(name, coordinates, parameters, inputs, constants)
        s: Symbols = parts.pop("symbols")
        L = s.expression(lagrangian, "the Lagrangian")
        refuse_within(L, (*s.a, *s.u), "the Lagrangian", "accelerations and inputs belong into forces")
        D = s.expression(dissipation, "the dissipation")
        refuse_within(D, s.a, "the dissipation", "it is a function of rates")
        acting = forces_of(s, forces)
        total = tuple(f - D.diff(v) for f, v in zip(acting, s.v, strict=True))
        rows = tuple(rate_of(L.diff(v), s) - L.diff(q) - f for q, v, f in zip(s.q, s.v, total, strict=True))
        made = cls(
            balance=rows,
            lagrangian=L,
            forces=total,
            **parts,
            **more_of(s, constraints, rolling, outputs),
        )
        return made.checked()

    @classmethod
    def from_equations(
        cls,
        name: str,
        equations: Any,
        *,
        coordinates: Any,
        parameters: Any,
        constants: Any = None,
        inputs: Any = (),
        constraints: Any = None,
        rolling: Any = None,
        outputs: Any = None,
    ) -> SymbolicMechanism:
        """From equations of motion, one a coordinate, linear in accelerations: "m*s'' = u - c*s' - k*s".

        Texts with one = sign, SymPy's Eq, or expressions that vanish. Constraints act on row i by
        −∂c/∂q_i times a multiplier: the rows are the forces on the coordinates, in their order.
        """
        parts = parts_of(name, coordinates, parameters, inputs, constants)
        s: Symbols = parts.pop("symbols")
        given = list(equations) if isinstance(equations, list | tuple | sm.MatrixBase) else [equations]
        if len(given) != len(s.q):
            raise MechidError(
                f"Mechanism '{name}' has {len(s.q)} coordinates ({choices(s.coordinates)}), but {len(given)} "
                f"equations of motion: give one for each."
            )
        rows = tuple(equation_of(s, e, f"equation {i + 1}") for i, e in enumerate(given))
        made = cls(balance=rows, **parts, **more_of(s, constraints, rolling, outputs)).checked()
        check_balances(made)
        return made

    @classmethod
    def from_method(cls, method: Any, **given: Any) -> SymbolicMechanism:
        """From a `LagrangesMethod` or `KanesMethod`: see `mechid.model.symbolic.methods.from_method`."""
        from mechid.model.symbolic.methods import from_method

        return from_method(method, **given)

    # What it says

    @cached_property
    def symbols(self) -> Symbols:
        return Symbols(self.coordinate_names, tuple(p.name for p in self.parameters), self.input_names)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.coordinates)

    @property
    def frame_names(self) -> tuple[str, ...]:
        return ("world",)

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.inputs)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.constraints)

    @property
    def rolling_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.rolling)

    def output(self, name: str) -> Named:
        for o in self.outputs:
            if o.name == name:
                return o
        raise unknown("output", name, [o.name for o in self.outputs])

    @cached_property
    def mass_matrix(self) -> Expression:
        """M(q, θ)."""
        return sm.Matrix(list(self.balance)).jacobian(list(self.symbols.a))

    @cached_property
    def rest(self) -> Expression:
        """h(q, q̇, u, t, θ) of M q̈ = h, inputs included."""
        still = dict.fromkeys(self.symbols.a, sm.Integer(0))
        return -sm.Matrix([row.xreplace(still) for row in self.balance])

    def general_form(self) -> GeneralForm:
        """M, u and h of the general form, to be looked at, printed as text or as LaTeX."""
        from mechid.model.symbolic.printing import general_form

        return general_form(self)

    def discretized(self, order: int = 1, *, latex: bool = False) -> str:
        """The constraints A(x, θ) x − b(x, θ) = 0 that a backward differentiation of an order makes of it."""
        from mechid.model.symbolic.printing import discretized

        return discretized(self, order, latex=latex)

    def linear_parameters(self) -> tuple[str, ...]:
        """Parameters in which, together, the equations of motion are linear: a regression finds them."""
        chosen: list[Expression] = []
        for p in (symbol(x.name) for x in self.parameters if not x.constant):
            slopes = [row.diff(p) for row in self.balance]
            if not any(s.has(p) or s.has(*chosen) for s in slopes) and any(s != 0 for s in slopes):
                chosen.append(p)
        return tuple(p.name for p in chosen)

    @cached_property
    def coefficients(self) -> tuple[Expression, ...]:
        """What the equations of motion depend on: the factors of their terms, and ratios of these.

        Empty where parameters stand within functions of the state.
        """
        return coefficients(self)

    def combined(self, names: Sequence[str], numbers: Array) -> list[tuple[str, float, Array]]:
        values = {p.name: p.value for p in self.parameters} | dict(zip(names, numbers, strict=True))
        free = [symbol(n) for n in names]
        known = {symbol(n): x for n, x in values.items()}
        found = []
        for e in self.coefficients if set(names) <= set(self.symbols.parameters) else ():
            # a factor that is known tells nothing
            e = e.as_independent(*free, as_Add=False)[1]
            if not e.free_symbols & set(free):
                continue
            value, *slope = (number(x.xreplace(known)) for x in (e, *(e.diff(x) for x in free)))
            # a ratio over a parameter that is zero is none
            if np.all(np.isfinite([value, *slope])):
                found.append((written(e), value, np.array(slope)))
        return sorted(found, key=lambda x: len(x[0]))

    # The way to arrays

    def checked(self) -> SymbolicMechanism:
        """This mechanism, if its equations can be those of a motion."""
        s = self.symbols
        if not s.q:
            raise MechidError(f"Mechanism '{self.name}' has no coordinates.")
        if "mass_matrix" not in vars(self):
            check_inertia(self)
        check_used(self)
        return self

    def lowered(self) -> SymbolicLowering:
        from mechid.dynamics.symbolic import SymbolicLowering

        return SymbolicLowering(self)

    def lower(self) -> SymbolicModel:
        return self.lowered().model()

    @cached_property
    def layout(self) -> Layout:
        count, late = len(self.parameters), self.input_names
        own = [Address(p.name, i, p.unit, "parameter") for i, p in enumerate(self.parameters)]
        delays = [Address(f"{name}.delay", count + i, "s", "input") for i, name in enumerate(late)]
        blocks = {"rigid": (0, 0, 10), "delay": (count, len(late), 1)}
        return Layout(blocks, count + len(late), (*own, *delays))

    @property
    def values(self) -> Array:
        """Parameters, then delays of inputs."""
        late = [self.delays.get(name, 0.0) for name in self.input_names]
        return np.array([*(p.value for p in self.parameters), *late], float)

    def delayed(self, input: str, delay: float) -> SymbolicMechanism:
        """An input that acts later than it was logged, s. It may be free: "u.delay"."""
        if input not in self.input_names:
            raise unknown("input", input, self.input_names)
        what = f"The delay of input '{input}'"
        if isinstance(delay, bool | str):
            raise MechidError(f"{what} must be a number, not {delay!r}.")
        late = float(finite(delay, (), what))
        if late < 0.0:
            raise MechidError(f"{what} must be ≥ 0 s, not {late:g}: no input acts before it was logged.")
        return self._with(delays={**self.delays, input: late})

    def renewed(self, layout: Layout, values: Array, tens: dict[int, Array]) -> SymbolicMechanism:
        count = len(self.parameters)
        new = tuple(replace(p, value=float(x)) for p, x in zip(self.parameters, values[:count], strict=True))
        late = zip(self.input_names, values[count:], strict=True)
        return self._with(parameters=new, delays={name: float(x) for name, x in late if x})

    def _with(self, **numbers: Any) -> SymbolicMechanism:
        changed = replace(self, **numbers)
        # derived once: numbers change nothing about them
        for key in ("mass_matrix", "rest", "symbols", "_code"):
            if key in vars(self):
                vars(changed)[key] = vars(self)[key]
        return changed

    def __repr__(self) -> str:
        from mechid.model.symbolic.printing import describe

        return describe(self)
