"""Motions of closed loops from the coordinates that were measured: the others follow from closure.

    h(q) = 0,    q̇_d = −J_d⁺ J_i q̇_i,    q̈_d = −J_d⁺ (J_i q̈_i + J̇ q̇)

J = ∂h/∂q, columns i of independent and d of dependent coordinates. The lever ∂q̇/∂q̇_i takes forces to rows of the
independent coordinates, in which those of closure do no work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mechid.compile import jit
from mechid.dynamics.assembly import assemble
from mechid.errors import MechidError, choices
from mechid.estimate.solvers.problem import plural
from mechid.model.parameters import Parameters
from mechid.model.parts import Motor

Array = np.ndarray
PASSES = 8
OPEN = 1e-8
"""m or rad by which a loop may stay open"""
DEAD = 0.02
"""of the firmest: how firmly the loops must hold what follows"""
ALIKE = 1e-8
"""of the largest: singular values below it are none"""


class ClosedMotion:
    """Which coordinates are independent, and how the others follow."""

    def __init__(self, free: Parameters, measured: Sequence[str], near: Array | None) -> None:
        m = self.mechanism = free.mechanism
        self.model: Any = free.lowering.model(np.array(free.lowering.values))
        self.rows = len(m.constraint_names) - len(m.drives)
        self.near = np.zeros(len(m.coordinates)) if near is None else np.asarray(near, float)
        names = m.coordinate_names
        unknown = [i for i, n in enumerate(names) if n not in measured]
        known = [i for i, n in enumerate(names) if n in measured]
        closed, still = jnp.asarray(assemble(m, self.near)), jnp.zeros(len(m.input_names))
        J = np.asarray(self.model.constraint(closed, still)[1])[: self.rows]
        rank = _rank(J)
        driven = [d.coordinate for d in m.drives if d.coordinate not in measured]
        if _rank(J[:, unknown]) < len(unknown) or driven:
            missing = driven or [names[i] for i in unknown]
            ways = plural(len(names) - rank, "way")
            raise MechidError(
                f"Mechanism '{m.name}' moves in {ways}, which the positions of "
                f"{choices([names[i] for i in known]) if known else 'nothing'} do not tell: measure more of "
                f"{choices(missing)}."
            )
        # what was measured beyond that follows too: what no motor moves first, motors are seldom at dead points
        moved = {e.coordinate for e in getattr(m, "elements", ()) if isinstance(e, Motor)}
        moved |= {d.coordinate for d in m.drives}
        dependent = list(unknown)
        for able in ([i for i in known if names[i] not in moved], [i for i in known if names[i] in moved]):
            basis = scipy.linalg.orth(J[:, dependent]) if dependent else np.zeros((self.rows, 0))
            left = J[:, able] - basis @ (basis.T @ J[:, able])
            order: Any = scipy.linalg.qr(left, mode="r", pivoting=True)[-1] if able else []
            dependent += [able[i] for i in order[: min(rank - len(dependent), _rank(left))]]
        self.dependent = np.array(sorted(dependent), int)
        self.independent = np.setdiff1d(np.arange(len(names)), self.dependent)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.mechanism.coordinate_names[i] for i in self.independent)

    def motion(self, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        """Positions, rates, accelerations (n, N) of all coordinates and the lever (n, independent, N)."""
        count = q.shape[1]
        if not count:
            n, k = len(self.near), len(self.independent)
            none = np.zeros((n, 0))
            return none, none, none, np.zeros((n, k, 0))
        guess = self.near.copy()
        guess[self.independent] = q[:, 0]
        first = assemble(self.mechanism, guess, hold=self.names)
        # few lengths, so that logs share programs
        fill = np.minimum(np.arange(2 ** max(8, int(np.ceil(np.log2(count))))), count - 1)
        given = (x[:, fill].T for x in (q, v, a))
        q, v, a, lever, left, firm = (
            np.asarray(x)[:count]
            for x in _followed(self.model, self.rows, self.independent, self.dependent, first, *given)
        )
        worst = int(np.argmax(left))
        if not left[worst] <= OPEN:
            raise MechidError(
                f"The loops of mechanism '{self.mechanism.name}' stay open by {left[worst]:.2g} (m, rad) where "
                + ", ".join(
                    f"{n} = {x:.4g}" for n, x in zip(self.names, q[worst, self.independent], strict=True)
                )
                + ": what was measured is out of its reach, or begins in another of its shapes (start=Start(q=…))."
            )
        weak = int(np.argmin(firm))
        if firm[weak] < DEAD:
            raise MechidError(
                f"{choices(self.names)} do not tell the motion of mechanism '{self.mechanism.name}' near "
                + ", ".join(
                    f"{n} = {x:.4g}" for n, x in zip(self.names, q[weak, self.independent], strict=True)
                )
                + ", a dead point: measure other coordinates too, or leave that part of the log out."
            )
        return q.T, v.T, a.T, np.moveaxis(lever, 0, -1)


def _rank(J: Array) -> int:
    return int(np.linalg.matrix_rank(J, tol=ALIKE * max(np.abs(J).max(initial=0.0), 1e-300))) if J.size else 0


@partial(jit, once=True, static_argnums=(1,))
def _followed(
    model: Any, rows: int, independent: Any, dependent: Any, first: Any, qs: Any, vs: Any, accelerations: Any
) -> tuple[Any, ...]:
    u = jnp.zeros(model.nu)

    def closure(q: Any) -> tuple[Any, Any]:
        h, J = model.constraint(q, u)
        return h[:rows], J[:rows]

    def one(before: Any, now: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        own, rate, acceleration = now
        q = before.at[independent].set(own)

        def closer(_: Any, q: Any) -> Any:
            h, J = closure(q)
            return q.at[dependent].add(-jnp.linalg.pinv(J[:, dependent]) @ h)

        q = jax.lax.fori_loop(0, PASSES, closer, q)
        h, J = closure(q)
        back = -jnp.linalg.pinv(J[:, dependent])
        lever = jnp.zeros((q.shape[0], independent.shape[0]))
        lever = lever.at[independent].set(jnp.eye(independent.shape[0]))
        lever = lever.at[dependent].set(back @ J[:, independent])
        v = lever @ rate
        bend = jax.jvp(lambda q: closure(q)[1] @ v, (q,), (v,))[1]
        a = (lever @ acceleration).at[dependent].add(back @ bend)
        sizes = jnp.linalg.svd(J[:, dependent], compute_uv=False)
        return q, (q, v, a, lever, jnp.max(jnp.abs(h)), sizes[-1] / sizes[0])

    return jax.lax.scan(one, jnp.asarray(first), (qs, vs, accelerations))[1]
