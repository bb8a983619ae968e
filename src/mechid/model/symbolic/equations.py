"""What equations of motion depend on: mistakes in them, and the factors of their terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np

from mechid.errors import MechidError, choices
from mechid.model.symbolic.expressions import TIME, Expression, sm, symbol

if TYPE_CHECKING:
    from mechid.model.symbolic.mechanism import SymbolicMechanism

LOOKED_THROUGH = 20_000
"""operations of equations that are searched for what cancels out of them"""
SAMPLES = 3
"""points at which an expression is looked at for what it depends on"""
SAMPLES_OF_KINKS = 60
"""the same of one made of pieces, farther apart"""
SIMPLIFIED = 500
"""operations of an expression that is simplified to see whether nothing is left of it"""
DIGITS = (30, 60)
KINKED = (sm.Abs, sm.sign, sm.Max, sm.Min, sm.Heaviside, sm.DiracDelta, sm.Piecewise)


def check_inertia(m: SymbolicMechanism) -> None:
    s = m.symbols
    for i, row in enumerate(m.mass_matrix.tolist()):
        for entry in row:
            if entry.has(*s.a):
                raise MechidError(
                    f"Equation {i + 1} of '{m.name}' is not linear in the accelerations ({choices(map(str, s.a))})."
                )
            bad = [x for x in (*s.v, *s.u) if x in entry.free_symbols]
            if bad:
                raise MechidError(
                    f"The inertia in equation {i + 1} of '{m.name}' depends on '{bad[0]}': it may depend on "
                    "coordinates, time and parameters only."
                )


def check_balances(m: SymbolicMechanism) -> None:
    """Refuse equations that are no balances of forces where forces of constraints act on them."""
    if not m.constraints and not m.rolling:
        return
    remedy = (
        "constraints act on the equations as forces, so write each as the force on its coordinate, in their order, "
        "with the acceleration's sign positive, as in m*x'' = -k*x."
    )
    own = [i for i, row in enumerate(m.mass_matrix.tolist()) if row[i] == sm.Integer(1) and row[i].is_Integer]
    weighed = any(x in m.mass_matrix.free_symbols for x in m.symbols.theta)
    if own and weighed:
        name = m.coordinate_names[own[0]]
        raise MechidError(
            f"Equation {own[0] + 1} of '{m.name}' has {name}'' without a mass, others have one: {remedy[:-1]}; an "
            f"inertia of one is written 1.0*{name}''."
        )
    program = sm.lambdify([*m.symbols.q, TIME, *m.symbols.theta], m.mass_matrix, "numpy", cse=True)
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES):
        with np.errstate(all="ignore"):
            M = np.array(
                program(
                    *rng.uniform(-0.7, 0.7, len(m.coordinates)),
                    0.5,
                    *map(np.float64, m.values[: len(m.parameters)]),
                ),
                float,
            )
        if not np.all(np.isfinite(M)):
            continue
        size = np.abs(M).max()
        if np.abs(M - M.T).max() > 1e-9 * size:
            raise MechidError(f"The mass matrix of '{m.name}' is not symmetric: {remedy}")
        if np.linalg.eigvalsh(M)[0] < -1e-9 * size:
            raise MechidError(f"The mass matrix of '{m.name}' is not positive: {remedy}")


def check_used(m: SymbolicMechanism) -> None:
    """Refuse parameters and inputs that nothing depends on."""
    every = [*m.balance, *(x.value for x in (*m.constraints, *m.rolling, *m.outputs))]
    used = set().union(*(e.free_symbols for e in every))
    given = m.lagrangian
    short = sum(sm.count_ops(e) for e in every) <= LOOKED_THROUGH
    for kind, symbols in (("Parameter", m.symbols.theta), ("Input", m.symbols.u)):
        for x in symbols:
            if x in used and not (short and _vanishes([e.diff(x) for e in every])):
                continue
            where = " of the equations of motion" if given is not None and x in given.free_symbols else ""
            raise MechidError(
                f"{kind} '{x}' of '{m.name}' cancels out{where}: no motion depends on it; leave it out."
                if where or x in used
                else f"{kind} '{x}' of '{m.name}' appears nowhere: leave it out, or use it."
            )


def _vanishes(slopes: list[Expression]) -> bool:
    """Whether expressions are zero everywhere, for sure."""
    left = [e for e in slopes if e != 0]
    if not left or any(e.is_number for e in left):
        return not left
    kinked = any(e.has(*KINKED) for e in left)
    looked = _looked_at(left, SAMPLES_OF_KINKS if kinked else SAMPLES)
    if looked is None:
        return False
    # what is analytic and zero about some points is zero everywhere; a piece of another may lie between the points
    return looked if not kinked else all(sm.count_ops(e) <= SIMPLIFIED and sm.simplify(e) == 0 for e in left)


def _looked_at(expressions: list[Expression], points: int) -> bool | None:
    """Whether each has a value somewhere, all of them zero; None where one is not zero.

    A value that stays when it is worked out with more digits is none of rounding, however small it is.
    """
    rng = np.random.default_rng(0)
    symbols = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    # slopes of jumps are zero beside them
    own = {"DiracDelta": lambda *_: 0, "Heaviside": lambda x, *_: float(x > 0)}
    program = sm.lambdify(symbols, expressions, modules=[own, "mpmath"], cse=True)
    looked = np.zeros(len(expressions), bool)
    for k in range(points):
        # about one first, then over six decades
        sizes = (
            rng.uniform(0.3, 1.7, len(symbols)) if k < SAMPLES else 10.0 ** rng.uniform(-3, 3, len(symbols))
        )
        signs = rng.choice((-1.0, 1.0), len(symbols)) if k % 2 else np.ones(len(symbols))
        try:
            few, many = (_worked_out(program, sizes * signs, digits) for digits in DIGITS)
        except (ArithmeticError, ValueError, TypeError):
            continue
        if any(abs(x - y) < 1e-6 * abs(y) for x, y in zip(few, many, strict=True)):
            return None
        looked |= [mpmath.isfinite(x) for x in many]
    return bool(looked.all())


def _worked_out(program: Callable[..., list[Any]], at: np.ndarray, digits: int) -> list[Any]:
    with mpmath.workdps(digits):
        return [mpmath.mpmathify(x) for x in program(*map(mpmath.mpf, at.tolist()))]


def coefficients(m: SymbolicMechanism) -> tuple[Expression, ...]:
    """Factors of the terms of the equations where one of them is known, and their ratios."""
    s = m.symbols
    states = (*s.q, *s.v, *s.a, *s.u, TIME)
    constants = {symbol(p.name) for p in m.parameters if p.constant}
    found: list[Expression] = []
    if sum(sm.count_ops(row) for row in m.balance) > LOOKED_THROUGH:
        return ()
    for row in m.balance:
        terms: dict[Expression, Expression] = {}
        for term in sm.Add.make_args(sm.expand(row)):
            factor, basis = term.as_independent(*states, as_Add=False)
            if basis.free_symbols & (set(s.theta) - constants):
                return ()
            terms[basis] = terms.get(basis, sm.Integer(0)) + factor
        factors = [sm.factor_terms(f) for f in terms.values() if f != 0]
        unknown_ones = [f for f in factors if f.free_symbols - constants]
        if len(unknown_ones) < len(factors):
            found += unknown_ones
        # where what is known does not act, an equation is only known up to a factor
        found += [sm.cancel(f / g) for f in unknown_ones for g in unknown_ones if f is not g]
    plain = [f if not f.could_extract_minus_sign() else -f for f in found]
    return tuple(dict.fromkeys(f for f in plain if f.free_symbols - constants))
