"""Conditions on the first state, r(q, v; θ) = 0: their residuals and slopes, and what is wrong with bad ones.

Conditions without a std are equality rows of the problem; those with one are rows of least squares, r/std.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import along
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.experiment import Condition
from mechid.estimate.start import Tangents

REMAINS = 1e-6
"""part of a condition's residual: where as much is left by the best change of what is free it cannot be met"""

Conditions = tuple[Condition, ...]


def exact(conditions: Conditions) -> Conditions:
    """Those that are equality rows."""
    return tuple(c for c in conditions if c.std is None)


def soft(conditions: Conditions) -> Conditions:
    """Those that are rows of least squares."""
    return tuple(c for c in conditions if c.std is not None)


def condition_values(conditions: Conditions, model: Model, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Residuals of all conditions in a row, over their std where they have one."""
    found = _values(conditions, model, q, v)
    return np.concatenate([_over(c, np.asarray(r)) for c, r in zip(conditions, found, strict=True)])


def condition_residuals(conditions: Conditions, q: Array, v: Array, model: Any) -> Array:
    """The same as a pure function."""
    found = [_of(c, q, v, model) / (1.0 if c.std is None else jnp.asarray(c.std)) for c in conditions]
    return jnp.concatenate([jnp.zeros(0), *found])


def condition_slopes(
    conditions: Conditions, model: Model, tangent: Any, q: np.ndarray, v: np.ndarray, start: Tangents
) -> np.ndarray:
    """(rows, nθ + nξ) the same by θ and ξ, given how the first coordinates and rates move."""
    found = _slopes(conditions, model, tangent, q, v, start.q, start.v)
    return np.concatenate([_over(c, np.asarray(J)) for c, J in zip(conditions, found, strict=True)])


def check_shapes(conditions: Conditions, model: Model, q: np.ndarray, v: np.ndarray, who: str) -> None:
    """Refuse residuals that cannot be computed at the start, or are no vectors of finite numbers there."""
    for c in conditions:
        what = f"Condition '{c.name}' of experiment '{who}'"
        try:
            shape = jax.eval_shape(lambda q, v, c=c: jnp.asarray(c.residual(q, v, model), float), q, v).shape
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise MechidError(f"{what} fails: {reason}.") from None
        if len(shape) > 1 or 0 in shape:
            raise MechidError(f"{what} must give a number or a vector, not shape {shape}.")
        count = int(np.prod(shape))
        if np.ndim(c.std) and np.shape(c.std) != (count,):  # type: ignore[arg-type]
            raise MechidError(
                f"{what} gives {count} {'value' if count == 1 else 'values'}, but its std has {np.size(c.std)}."  # type: ignore[arg-type]
            )
        if not np.all(np.isfinite(condition_values((c,), model, q, v))):
            raise MechidError(f"{what} is not finite at the start.")


def check_slopes(
    conditions: Conditions,
    model: Model,
    tangent: Any,
    q: np.ndarray,
    v: np.ndarray,
    start: Tangents,
    who: str,
) -> None:
    """Refuse residuals without derivatives at the start, and exact ones that nothing free can bring to zero."""
    for c in conditions:
        if not np.all(np.isfinite(condition_slopes((c,), model, tangent, q, v, start))):
            raise MechidError(f"Condition '{c.name}' of experiment '{who}' has no derivative at the start.")
    held = exact(conditions)
    if not held:
        return
    r, J = condition_values(held, model, q, v), condition_slopes(held, model, tangent, q, v, start)
    left = np.abs(r - J @ np.linalg.lstsq(J, r, rcond=None)[0])
    owner = [c.name for c in held for _ in condition_values((c,), model, q, v)]
    worst = int(np.argmax(left))
    if left[worst] > REMAINS * np.abs(r).max() + 1e-9:
        raise MechidError(
            f"Condition '{owner[worst]}' of experiment '{who}' cannot be met by what is free: {left[worst]:.3g} of "
            "it would remain; free more of the start or of the parameters, or start elsewhere."
        )


def _over(condition: Condition, rows: np.ndarray) -> np.ndarray:
    """Rows over the condition's std, if it has one."""
    if condition.std is None:
        return rows
    std = np.broadcast_to(np.asarray(condition.std, float), len(rows))
    return rows / std.reshape(-1, *(1,) * (rows.ndim - 1))


def _of(condition: Condition, q: Array, v: Array, model: Any) -> Array:
    return jnp.atleast_1d(jnp.asarray(condition.residual(q, v, model), float))


@partial(jit, once=True, static_argnums=(0,))
def _values(conditions: Conditions, model: Any, q: Array, v: Array) -> list[Array]:
    return [_of(c, q, v, model) for c in conditions]


@partial(jit, once=True, static_argnums=(0,))
def _slopes(
    conditions: Conditions, model: Any, tangent: Any, q: Array, v: Array, dq: Array, dv: Array
) -> list[Array]:
    found = []
    for c in conditions:

        def moved(dq: Array, dv: Array, c: Condition = c) -> Array:
            return jax.jvp(lambda q, v: _of(c, q, v, model), (q, v), (dq, dv))[1]

        J = jax.vmap(moved, in_axes=-1, out_axes=-1)(dq, dv)
        own = along(
            lambda m, c=c: _of(c, q, v, m), model, tangent, J[:, 0] if J.shape[1] else _of(c, q, v, model)
        )
        found.append(J.at[:, : own.shape[1]].add(own))
    return found
