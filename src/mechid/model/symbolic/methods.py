"""`from_method`: a mechanism from SymPy's own `LagrangesMethod` or `KanesMethod`.

Kane's generalized speeds u are those of kinematical equations q̇ = K(q) u + k(q); speeds that no coordinate belongs
to get one, their integral. SymPy eliminates dependent speeds symbolically, by pivots that may vanish where a
mechanism stands straight. Here Kane's equations are formed again with all speeds free, and with u = Y q̇ + y

    Yᵀ (F_r + F_r*) = Cᵀ λ,        C q̇ + c = 0,

so that multipliers λ are forces, and constraints on rates hold exactly instead of their derivatives. Those that
follow from constraints on coordinates are held as such: nothing drifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg
from sympy.core.function import AppliedUndef
from sympy.physics.mechanics import KanesMethod, LagrangesMethod, System, dynamicsymbols

from mechid.errors import MechidError, choices
from mechid.model.symbolic.expressions import (
    TIME,
    Symbols,
    name_in,
    named,
    refuse_no_function_of_time,
    sm,
    symbol,
)
from mechid.model.symbolic.given import Named, more_of, parts_of
from mechid.model.symbolic.mechanism import SymbolicMechanism

DEFAULT_UNIT = "rad"


def from_method(
    method: Any,
    *,
    name: str = "mechanism",
    parameters: Any,
    constants: Any = None,
    inputs: Any = (),
    units: Mapping[Any, str] | None = None,
    outputs: Any = None,
) -> SymbolicMechanism:
    """A mechanism from a `LagrangesMethod`, or a `KanesMethod` whose `kanes_equations` have been formed.

    parameters: a value, or (value, unit), for every symbol in it. inputs: the functions of time that are neither
    coordinates nor speeds. units of coordinates: rad where nothing else is said.
    """
    if isinstance(method, LagrangesMethod):
        return _from_lagrange(method, name, parameters, constants, inputs, units, outputs)
    if isinstance(method, KanesMethod):
        return _from_kane(method, name, parameters, constants, inputs, units, outputs)
    if isinstance(method, System):
        raise MechidError(
            "A System of sympy.physics.mechanics holds the method that is needed: after its form_eoms() give its "
            "eom_method."
        )
    raise MechidError(
        f"A LagrangesMethod or KanesMethod of sympy.physics.mechanics is needed, not {method!r}."
    )


def _coordinates(q: Any, units: Mapping[Any, str] | None) -> dict[str, str]:
    given = named(units, "Coordinate")
    found = {name_in(x): DEFAULT_UNIT for x in q}
    for name, unit in given.items():
        if name not in found:
            raise MechidError(f"units name '{name}', which is no coordinate; valid: {choices(found)}.")
        found[name] = unit
    return found


def _from_lagrange(
    method: Any, name: str, parameters: Any, constants: Any, inputs: Any, units: Any, outputs: Any
) -> SymbolicMechanism:
    if method.eom is None:
        method.form_lagranges_equations()
    closed = list(method._hol_coneqs)
    rolling = list(method.coneqs)[len(closed) :]
    coordinates = _coordinates(method.q, units)
    _all_given([*method._L, *method._term4, *method.coneqs], coordinates, parameters, constants, inputs)
    return SymbolicMechanism.from_lagrangian(
        name,
        method._L[0],
        coordinates=coordinates,
        parameters=parameters,
        constants=constants,
        inputs=inputs,
        forces=list(method._term4),
        constraints=closed or None,
        rolling=rolling or None,
        outputs=outputs,
    )


def _from_kane(
    method: Any, name: str, parameters: Any, constants: Any, inputs: Any, units: Any, outputs: Any
) -> SymbolicMechanism:
    if not method.bodies:
        raise MechidError("The KanesMethod has no bodies yet: call its kanes_equations(bodies, loads) first.")
    if method._uaux:
        raise MechidError("A KanesMethod with auxiliary speeds is not read: leave u_auxiliary out.")
    t = dynamicsymbols._t  # type: ignore[attr-defined]
    kinematics = _kinematics(method)
    speeds = list(method.u)
    without = [u for u in speeds if not any(e.has(u) for e in kinematics.values())]
    own = [sm.Function(f"int_{name_in(u)}")(t) for u in without]
    q = [*method.q, *own]
    if len(q) != len(speeds):
        raise MechidError(
            f"The KanesMethod has {len(speeds)} speeds for {len(q)} coordinates: give each coordinate a speed."
        )
    coordinates = _coordinates(q, units)
    free = KanesMethod(
        method._inertial, list(method.q), speeds, kd_eqs=[rate - e for rate, e in kinematics.items()]
    )
    free.kanes_equations(method.bodies, method.loads)
    inertia, forcing = free.mass_matrix, free.forcing
    _all_given([inertia, forcing, *method._f_h], coordinates, parameters, constants, inputs, speeds)
    parts = parts_of(name, coordinates, parameters, inputs, constants)
    s: Symbols = parts.pop("symbols")
    known = _Known(s, speeds, q, {**kinematics, **{f.diff(t): u for f, u in zip(own, without, strict=True)}})
    factors = known.of(inertia)
    balance = known.slope.T * (factors * sm.Matrix(known.accelerations) - known.of(forcing))
    closed = [known.of(sm.Matrix([h]))[0] for h in method._f_h]
    rolled = (
        list(known.of(method._k_nh) * sm.Matrix(known.speeds) + known.of(method._f_nh))
        if method._udep
        else []
    )
    values = np.array([p.value for p in parts["parameters"]])
    kept = _not_implied(s, closed, rolled, values)
    made = SymbolicMechanism(
        balance=tuple(balance),
        constraints=tuple(Named(f"constraint{i + 1}", "", c) for i, c in enumerate(closed)),
        rolling=tuple(Named(f"rolling{i + 1}", "", rolled[i]) for i in kept),
        **parts,
        outputs=more_of(s, None, None, outputs)["outputs"],
        notes=tuple(
            f"Coordinate '{name_in(f)}' is the integral of speed '{name_in(u)}', which has no coordinate."
            for f, u in zip(own, without, strict=True)
        ),
    )
    # a jacobian of these expressions would take long, and the accelerations' factors are known
    vars(made)["mass_matrix"] = known.slope.T * factors * known.slope
    return made.checked()


def _kinematics(method: Any) -> dict[Any, Any]:
    """q̇ of speeds, as the method has it, but divided by what vanishes only where it must."""
    found = method.kindiffdict()
    by_rates = method._k_kqdot_implicit
    if not by_rates.free_symbols and not by_rates.atoms(AppliedUndef):
        return found
    rates = -_inverse(by_rates) * (method._k_ku_implicit * method.u + method._f_k_implicit)
    return dict(zip(method.q.diff(dynamicsymbols._t), rates, strict=True))  # type: ignore[attr-defined]


def _inverse(matrix: Any) -> Any:
    """An inverse, block by block, without pivots that vanish where the matrix is regular."""
    found = sm.zeros(*matrix.shape)
    for part in matrix.connected_components():
        block = matrix.extract(part, part)
        inverse = (
            block.adjugate() / sm.simplify(block.det())
            if len(part) <= 4
            else block.LUsolve(sm.eye(len(part)))
        )
        for i, row in enumerate(part):
            for k, column in enumerate(part):
                found[row, column] = inverse[i, k]
    return found


class _Known:
    """Kane's symbols in those of a mechanism: speeds and their rates as expressions of q, q̇ and q̈."""

    def __init__(self, s: Symbols, speeds: list[Any], q: list[Any], kinematics: dict[Any, Any]) -> None:
        t = dynamicsymbols._t  # type: ignore[attr-defined]
        self._plain = dict(zip(q, s.q, strict=True))
        right = sm.Matrix([kinematics[f.diff(t)] for f in q])
        K = right.jacobian(speeds)
        rest = right.xreplace(dict.fromkeys(speeds, sm.Integer(0)))
        K, rest = (self._symbols(m, s) for m in (K, rest))
        v = sm.Matrix(list(s.v))
        if all(sum(x != 0 for x in K.row(i)) == 1 for i in range(K.rows)) and all(x in (0, 1) for x in K):
            self.slope = K.T
        else:
            self.slope = _inverse(K)
        self.speeds = list(self.slope * (v - rest))
        self.accelerations = [
            sum(
                (e.diff(x) * y for x, y in (*zip(s.q, s.v, strict=True), *zip(s.v, s.a, strict=True))),
                e.diff(TIME),
            )
            for e in self.speeds
        ]
        self._rules = {
            **self._plain,
            **dict(zip(speeds, self.speeds, strict=True)),
            **dict(zip((u.diff(t) for u in speeds), self.accelerations, strict=True)),
            **dict(zip((f.diff(t) for f in q), s.v, strict=True)),
        }
        self._s = s

    def _symbols(self, matrix: Any, s: Symbols) -> Any:
        names = {x: symbol(name_in(x)) for x in matrix.free_symbols}
        inputs = {f: symbol(name_in(f)) for f in matrix.atoms(AppliedUndef) if f not in self._plain}
        return matrix.xreplace({**names, **inputs, **self._plain})

    def of(self, matrix: Any) -> Any:
        """An expression in the mechanism's symbols."""
        names = {x: symbol(name_in(x)) for x in matrix.free_symbols}
        inputs = {f: symbol(name_in(f)) for f in matrix.atoms(AppliedUndef) if f not in self._rules}
        return matrix.xreplace({**names, **inputs, **self._rules})


def _all_given(
    expressions: list[Any],
    coordinates: Any,
    parameters: Any,
    constants: Any,
    inputs: Any,
    speeds: list[Any] | None = None,
) -> None:
    """Refuse symbols that are neither coordinate, parameter nor input, all of them at once."""
    moving = {*coordinates, *(name_in(u) for u in speeds or ())}
    for d in sorted(set().union(*(e.atoms(sm.Derivative) for e in expressions)), key=str):
        if isinstance(d.expr, AppliedUndef) and name_in(d.expr) not in moving:
            raise MechidError(
                f"The method holds {d}, a rate of '{name_in(d.expr)}', which is no coordinate: put a function "
                "of time of its own in its place, an input that is known besides."
            )
    known = {*coordinates, *named(parameters, "Parameter"), *named(constants, "Constant"), "t"}
    known |= set(named(inputs, "Input"))
    known |= {name_in(u) for u in speeds or ()}
    names: set[str] = set()
    for e in expressions:
        for f in e.atoms(AppliedUndef):
            refuse_no_function_of_time(f, "the method")
        names |= {name_in(x) for x in e.free_symbols} | {name_in(f) for f in e.atoms(AppliedUndef)}
    left = sorted(names - known)
    if left:
        raise MechidError(
            f"{choices(left, 20)}: neither coordinates nor among the parameters or inputs that were given; name "
            "each with a value, or as an input."
        )


def _not_implied(s: Symbols, closed: list[Any], rolled: list[Any], values: np.ndarray) -> list[int]:
    """Which constraints on rates are needed besides those on coordinates."""
    if not rolled or not closed:
        return list(range(len(rolled)))
    given = [*s.q, *s.theta]
    gap = sm.lambdify(given, closed, modules="numpy", cse=True)
    slope = sm.lambdify(given, sm.Matrix(closed).jacobian(list(s.q)), modules="numpy", cse=True)
    rates = sm.lambdify(given, sm.Matrix(rolled).jacobian(list(s.v)), modules="numpy", cse=True)
    q = np.random.default_rng(0).uniform(-0.1, 0.1, len(s.q))
    for _ in range(50):
        step = np.linalg.lstsq(
            np.array(slope(*q, *values), float), np.array(gap(*q, *values), float), rcond=None
        )
        q = q - np.clip(step[0], -0.2, 0.2)
    D, C = (np.array(f(*q, *values), float) for f in (slope, rates))
    _, _, right = np.linalg.svd(D)
    outside = C @ right[len(D) :].T
    _, r, order = scipy.linalg.qr(outside.T, mode="economic", pivoting=True)  # type: ignore[misc]
    rank = int(np.sum(np.abs(np.diag(r)) > 1e-8 * np.linalg.norm(C)))
    return sorted(int(i) for i in order[:rank])
