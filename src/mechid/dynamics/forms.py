"""The same steps with their errors in another form (Marklund, Section 3.1 and 3.2).

    "impulses"       w: impulses that would lead from velocity to velocity (3.7); coordinates follow exactly
    "two-impulses"   and those that would lead from coordinates to coordinates (3.8)
    "states"         what a step misses of the next state, e = x_{k+1} − φ(x_k): forward dynamics (3.3)–(3.5)

Each is a stepper of its own around the one that steps, with other dynamic rows, so that estimators need not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics.linear import factorise, solve
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Blocks, Outcome, RowKind, Seen, Stepper, StepResult, columns
from mechid.dynamics.tree import Array


@dataclass(frozen=True, eq=False)
class _Form(Stepper):
    """A stepper that does what another one does."""

    inner: Stepper

    @property
    def dt(self) -> Any:  # type: ignore[override]
        return self.inner.dt

    @property
    def window(self) -> int:  # type: ignore[override]
        return self.inner.window

    @property
    def products(self) -> bool:  # type: ignore[override]
        return self.inner.products

    def nx(self, model: Model) -> int:
        return self.inner.nx(model)

    def nz(self, model: Model) -> int:
        return self.inner.nz(model)

    def initial(self, model: Model, q: Array, v: Array, u: Array, t: Array) -> Any:
        return self.inner.initial(model, q, v, u, t)

    def step(
        self,
        xs: Any,
        u: Array,
        t: Array,
        k: Array,
        model: Model,
        guess: tuple[Any, Array],
        memory: Any = None,
    ) -> StepResult:
        return self.inner.step(xs, u, t, k, model, guess, memory)

    def remember(self, model: Model, x: Any, u: Array) -> Any:
        return self.inner.remember(model, x, u)

    def predict(self, history: Any, zs: Array, known: Array) -> tuple[Any, Array]:
        return self.inner.predict(history, zs, known)

    def retract(self, x: Any, d: Array) -> Any:
        return self.inner.retract(x, d)

    def local(self, x: Any, y: Any) -> Array:
        return self.inner.local(x, y)

    def positions(self, model: Model, x: Any) -> Array:
        return self.inner.positions(model, x)

    def velocities(self, model: Model, x: Any, u: Array, driven: Array) -> Array:
        return self.inner.velocities(model, x, u, driven)

    def seen(self, *now: Any) -> Seen:
        return self.inner.seen(*now)

    def seen_at_end(self, *now: Any) -> Seen:
        return self.inner.seen_at_end(*now)

    def reactions(self, z: Array, h: Array, model: Model) -> Array:
        return self.inner.reactions(z, h, model)

    def check(self, model: Model, steps: int) -> None:
        self.inner.check(model, steps)

    def on(self, mechanism: Any) -> Stepper:
        return type(self)(self.inner.on(mechanism))


class TwoImpulses(_Form):
    """Kinematic rows as impulses, those of the dynamic rows included: r_v + M r_q / h."""

    def _places(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        kinds = self.inner.rows(model)
        return tuple(  # type: ignore[return-value]
            np.flatnonzero([kind is wanted for kind in kinds])
            for wanted in (RowKind.DYNAMIC, RowKind.KINEMATIC)
        )

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        return tuple(RowKind.DYNAMIC if k is RowKind.KINEMATIC else k for k in self.inner.rows(model))

    def residual(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        r = self.inner.residual(xs, z, u, t, k, model)
        dynamic, kinematic = self._places(model)
        if not len(kinematic):
            return r
        M = self.inner.inertia(model, jax.tree.map(lambda a: a[-2], xs))
        return r.at[kinematic].set(r[dynamic] + M @ r[kinematic] / self.step_size(k))

    def linearize(
        self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model, tangent: Any = None
    ) -> Blocks:
        by = self.inner.linearize(xs, z, u, t, k, model, tangent)
        dynamic, kinematic = self._places(model)
        if not len(kinematic):
            return by
        h, x, gap = self.step_size(k), jax.tree.map(lambda a: a[-2], xs), by.r[kinematic]
        M = self.inner.inertia(model, x)

        def impulse(d: Array, m: Model) -> Array:
            return self.inner.inertia(m, self.retract(x, d)) @ gap / h

        value, (by_x,), by_theta = columns(impulse, (jnp.zeros(self.nx(model)),), model, tangent)

        def changed(rows: Array) -> Array:
            return rows.at[kinematic].set(rows[dynamic] + M @ rows[kinematic] / h)

        new = Blocks(
            by.r.at[kinematic].set(by.r[dynamic] + value),
            jax.vmap(changed)(by.x),
            *map(changed, (by.z, by.u, by.theta)),
        )
        return new._replace(x=new.x.at[-2, kinematic].add(by_x), theta=new.theta.at[kinematic].add(by_theta))


class Forward(_Form):
    """What a step misses: the next state and multipliers less those that the step itself finds."""

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        return (RowKind.DYNAMIC,) * self.nx(model) + (RowKind.HARD,) * self.nz(model)

    def _stepped(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> tuple[Any, Array]:
        """The states with the newest one as the step finds it, and the step's multipliers."""
        past, newest = jax.tree.map(lambda a: a[:-1], xs), jax.tree.map(lambda a: a[-1], xs)
        found = self.inner.step(past, u, t, k, model, (newest, z))
        solved = jnp.where(found.outcome == int(Outcome.SOLVED), 1.0, jnp.nan)
        reached = jax.tree.map(lambda a, b: jnp.concatenate([a, solved * b[None]]), past, found.state)
        return reached, found.z

    def residual(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        reached, multipliers = self._stepped(xs, z, u, t, k, model)
        ends = (jax.tree.map(lambda a: a[-1], x) for x in (reached, xs))
        return jnp.concatenate([self.local(*ends), z - multipliers])

    def linearize(
        self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model, tangent: Any = None
    ) -> Blocks:
        nx, nz = self.nx(model), self.nz(model)
        reached, multipliers = self._stepped(xs, z, u, t, k, model)
        by = self.inner.linearize(reached, multipliers, u, t, k, model, tangent)
        known = jnp.concatenate([*by.x[:-1], by.u, by.theta], -1)
        solved = -solve(factorise(jnp.concatenate([by.x[-1], by.z], -1)), known)
        predicted, newest = (jax.tree.map(lambda a: a[-1], x) for x in (reached, xs))

        def gap(d: Array, e: Array) -> Array:
            return self.local(self.retract(predicted, d), self.retract(newest, e))

        by_predicted, by_newest = jax.jacfwd(gap, argnums=(0, 1))(jnp.zeros(nx), jnp.zeros(nx))
        rows = jnp.concatenate([by_predicted @ solved[:nx], -solved[nx:]])
        ends = np.cumsum([nx] * self.window + [by.u.shape[-1]])
        *by_x, by_u, by_theta = jnp.split(rows, ends, axis=-1)
        by_x.append(jnp.concatenate([by_newest, jnp.zeros((nz, nx))]))
        by_z = jnp.concatenate([jnp.zeros((nx, nz)), jnp.eye(nz)])
        r = jnp.concatenate([self.local(predicted, newest), z - multipliers])
        return Blocks(r, jnp.stack(by_x), by_z, by_u, by_theta)


FORMS = {"impulses": lambda stepper: stepper, "two-impulses": TwoImpulses, "states": Forward}

for _form in (TwoImpulses, Forward):
    register(_form, ["inner"])
