"""SPOOK: regularised time stepping in maximal coordinates (Marklund, Eqs. 2.8–2.16, signs as in mechanics).

Every body has a centre of mass r, a unit quaternion e and a velocity [v ; ω]. Joints and loops are constraints
g(x) with Jacobian G, compliance ε and relaxation time τ. With γ = 1/(1 + 4τ/h), one step solves

    [ M  −Gᵀ ] [v⁺]   [ M v + h f                 ]
    [ G   Σ  ] [λ ] = [ −(4/h) γ g + γ G v        ]      Σ = (4/h²) ε γ,   f with gyroscopic moment

and moves x⁺ = x ⊞ h v⁺. λ is an impulse and stays an explicit unknown: eliminating it would make the step's
Jacobian ill-conditioned as joints stiffen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics import dry, elements
from mechid.dynamics import spook_boxes as boxes
from mechid.dynamics import spook_linear as linear
from mechid.dynamics.loops import joint_rows
from mechid.dynamics.model import TreeModel, moves_only_forces
from mechid.dynamics.rotations import quaternion_of_rotation
from mechid.dynamics.spook_coordinates import CoordinateSpook
from mechid.dynamics.spook_rows import (
    NUMBERS,
    ByRow,
    Rows,
    Softness,
    by_row,
    check_softness,
    coordinate_rows,
    counts,
    regularised,
    split,
)
from mechid.dynamics.spook_scene import (
    Scene,
    State,
    body_forces,
    exp_of,
    impulses,
    inertias,
    mass_matrix,
    moved_along,
    scene_of,
    stacked,
    turn_between,
)
from mechid.dynamics.spook_slopes import (
    Balance,
    Slopes,
    bodies_along,
    by_bodies,
    kinematic_slopes,
    new_poses,
    slopes,
)
from mechid.dynamics.stepper import (
    Blocks,
    Outcome,
    RowKind,
    Stepper,
    StepResult,
    along,
    parameter_count,
    without,
)
from mechid.dynamics.tree import Array, cross, kinematics, spread
from mechid.errors import MechidError
from mechid.model.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class Spook(Stepper):
    """Regularised maximal-coordinate stepper, first order in dt.

    Angles are read off the bodies, with the full turns that lie nearest to the last step's.
    """

    dt: Any
    """s"""
    compliance: Any = 1e-10
    """of rows in m: m/N"""
    rotational_compliance: Any = None
    """of rows in rad: rad/(N·m); as `compliance` where None"""
    relaxation_time: Any = None
    """s; two steps where None"""
    rotational_relaxation_time: Any = None
    """s, of rows in rad; as `relaxation_time` where None"""
    constraints: Mapping[str, Softness] | ByRow | None = None
    """{name: Softness(…)}: what is softer or stiffer than that, joints, loops, couplings, drives and contacts by
    their names, the stops of a joint hinge as hinge.stops"""

    window = 1
    products = True

    def nx(self, model: TreeModel) -> int:  # type: ignore[override]
        return 12 * model.maximal.link.shape[0]

    def nz(self, model: TreeModel) -> int:  # type: ignore[override]
        return sum(counts(model))

    def rows(self, model: TreeModel) -> tuple[RowKind, ...]:  # type: ignore[override]
        half, count = self.nx(model) // 2, counts(model)
        kinds = (RowKind.DYNAMIC,) * half + (RowKind.KINEMATIC,) * half
        boxed = (RowKind.FRICTION,) * (count.stops + count.dry)
        return kinds + (RowKind.FRICTION,) * count.contacts + (RowKind.HARD,) * count.held + boxed

    def check(self, model: TreeModel, steps: int) -> None:  # type: ignore[override]
        super().check(model, steps)
        check_softness(self, "Spook")
        if not isinstance(model, TreeModel):
            raise MechidError("Spook moves mechanisms of bodies and joints only, not other models.")
        named = self.constraints
        if isinstance(named, ByRow) and len(named.compliance) != counts(model).closing:
            raise MechidError("The constraints of Spook are those of another mechanism.")

    def on(self, mechanism: Any) -> Stepper:
        """With the constraints that are named as rows of the mechanism's; without bodies, in coordinates."""
        if not isinstance(mechanism, Mechanism):
            if self.constraints is not None:
                raise MechidError(f"Mechanism '{mechanism.name}' has no joints or loops to be softened.")
            check_softness(self, "Spook")
            return CoordinateSpook(self.dt, self.compliance, self.relaxation_time)
        if self.constraints is None or isinstance(self.constraints, ByRow):
            return self
        return replace(self, constraints=by_row(mechanism, self.constraints))

    # States: R³ and unit quaternions, ⊞ from the left

    def initial(self, model: TreeModel, q: Array, v: Array, u: Array, t: Array) -> State:  # type: ignore[override]
        at = kinematics(model, q)
        link = model.maximal.link
        pose, twist = at.pose[link], (model.ancestry[:-1] @ (at.twist_axes * v[:, None]))[link]
        _, com, _ = inertias(model)
        r = jnp.einsum("bij,bj->bi", pose[:, :3, :3], com) + pose[:, :3, 3]
        e = jax.vmap(quaternion_of_rotation)(pose[:, :3, :3])
        return State(r, e, twist[:, 3:] + cross(twist[:, :3], r), twist[:, :3], q)

    def retract(self, x: State, d: Array) -> State:
        return moved_along(x, d)

    def local(self, x: State, y: State) -> Array:
        return jnp.concatenate([y.r - x.r, turn_between(x.e, y.e), y.v - x.v, y.w - x.w]).reshape(-1)

    def positions(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        """Joint coordinates read off the bodies' relative poses."""
        return scene_of(model, x).at.q

    def boxed_positions(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        at, k = scene_of(model, x).at, model.contacts.blur.shape[0]
        on_joints = jnp.concatenate([model.stops.index, model.dry.index]).astype(int)
        return jnp.concatenate([linear.dot(at.n, at.gap)[:k], at.q[on_joints]])

    def velocities(  # type: ignore[override]
        self, model: TreeModel, x: State, u: Array, driven: Array
    ) -> Array:
        return linear.jacobian(scene_of(model, x).at)[-model.nq :] @ stacked(x)

    def inertia(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        """M + Gᵀ Σ⁻¹ G (Marklund, 3.14): joints resist as much as their compliance lets them."""
        scene, count = scene_of(model, x), counts(model)
        G = linear.jacobian(scene.at)
        rates = G[-model.nq :]
        h, apart = self.step_size(jnp.asarray(0)), jnp.zeros(count.closing)
        sigma = self._rows(model, h, apart).sigma[count.contacts :][: count.held]
        _, slope = joint_rows(model, scene.at.q, jnp.zeros(model.nu))
        closing = jnp.concatenate([G[count.contacts : -model.nq], slope @ rates])
        stiff = jnp.where(sigma > 0.0, 1.0 / jnp.where(sigma > 0.0, sigma, 1.0), 0.0)
        return _felt(model, scene, rates) + (closing.T * stiff) @ closing

    def row_inertias(self, model: TreeModel, q: Array) -> Array:  # type: ignore[override]
        mass, _, inertia = inertias(model)
        return jnp.concatenate(
            [jnp.repeat(mass, 3), jnp.repeat(jnp.trace(inertia, axis1=1, axis2=2) / 3.0, 3)]
        )

    # One step

    def residual(
        self,
        xs: State,
        z: Array,
        u: Array,
        t: Array,
        k: Array,
        model: TreeModel,  # type: ignore[override]
    ) -> Array:
        x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (0, 1))
        h = self.step_size(k)
        scene = scene_of(model, x0)
        G = linear.jacobian(scene.at)
        return self._residual(x0, x1, z, u, t, h, model, scene, G).r

    def _residual(
        self,
        x0: State,
        x1: State,
        z: Array,
        u: Array,
        t: Array,
        h: Array,
        model: TreeModel,
        scene: Scene,
        G: Array,
    ) -> Balance:
        at, c = scene.at, G.shape[0] - model.nq
        z, stuck = split(model, z)
        rates = G @ jnp.stack([stacked(x0), stacked(x1)], -1)
        closure, slope = coordinate_rows(model, at.q, u)
        joint = elements.weighed(model, model.armature, rates[c:, 1] - rates[c:, 0])
        joint += h * elements.weighed(model, model.damping[:, 0], rates[c:, 1])
        joint -= h * self._joint_force(x0, rates[c:, 0], u, t, model, at) + slope.T @ z[c:]
        joint -= spread(stuck, model.dry.index, model.nq)
        weights = jnp.concatenate([-z[:c], joint])
        body = impulses(scene, x1.v - x0.v, x1.w - x0.w)
        body -= h * body_forces(model, x0, scene, u)
        g = jnp.concatenate([linear.dot(at.n, at.gap)[:c], closure])
        rows = self._rows(model, h, g)
        old, new = jnp.concatenate([rates[:c], slope @ rates[c:]]).T
        closing = closed = new + rows.sigma * z + rows.stiff * g - rows.gamma * old
        box = boxes.box(model, z)
        if len(box.index):
            i = box.index
            held = dry.boxed(z[i], closing[i], box.bound, box.inertia, box.blur, box.one_sided)
            closing = closing.at[i].set(held)
        kinematic, turned = _followed(x0, x1, h)
        on = model.dry.index
        U = boxes.loads(model)
        bound = h * dry.level(model.dry.values, rates[c:, 0][on]) + U @ jnp.abs(z)
        held = dry.row(stuck, rates[c:, 1][on], bound, model.dry.inertia, model.dry.blur)
        r = jnp.concatenate([body.reshape(-1) + weights @ G, kinematic, closing, held])
        return Balance(r, weights, rates[c:], turned, slope, rows, bound, box, closed)

    def step(
        self,
        xs: State,
        u: Array,
        t: Array,
        k: Array,
        model: TreeModel,
        guess: tuple[State, Array],  # type: ignore[override]
        memory: Any = None,
    ) -> StepResult:
        x0 = jax.tree.map(lambda a: a[-1], xs)
        h = self.step_size(k)
        scene, old = scene_of(model, x0), stacked(x0)
        G = linear.jacobian(scene.at)
        c, half = G.shape[0] - model.nq, old.shape[0]
        rates = G[c:]
        closure, slope = coordinate_rows(model, scene.at.q, u)
        own = _felt(model, scene, rates)
        mass = own + h * rates.T @ elements.weighed(model, model.damping[:, 0], rates)
        force = body_forces(model, x0, scene, u).reshape(-1)
        force += rates.T @ self._joint_force(x0, rates @ old, u, t, model, scene.at)
        g = jnp.concatenate([linear.dot(scene.at.n, scene.at.gap)[:c], closure])
        rows = self._rows(model, h, g)
        closing = jnp.concatenate([G[:c], slope @ rates])
        target = rows.gamma * (closing @ old) - rows.stiff * g
        box = boxes.box(model, jnp.zeros(len(target)))
        held = np.delete(np.arange(len(target)), box.index)
        kkt = jnp.block([[mass, -closing[held].T], [closing[held], jnp.diag(rows.sigma[held])]])
        right = jnp.concatenate([own @ old + h * force, target[held]])
        if not len(box.index) + model.dry.index.shape[0]:
            solved, error = jnp.linalg.solve(kkt, right), 0.0
            lam = solved[half:]
        else:
            boxed = boxes.gathered(model, box, closing, rates, rows.sigma, target, old, h)
            solved, lam, error = boxes.solved(kkt, right, boxed, model, guess[1])
        new = solved[:half]
        moved = self.retract(x0, jnp.concatenate([h * new, jnp.zeros(half)]))
        v, w = new.reshape(2, -1, 3)
        fine = jnp.all(jnp.isfinite(solved))
        ended = jnp.where(error > dry.OPEN, int(Outcome.UNSETTLED), int(Outcome.SOLVED))
        outcome = jnp.where(fine, ended, int(Outcome.SINGULAR))
        unit = moved.e / jnp.linalg.norm(moved.e, axis=-1, keepdims=True)
        state = State(moved.r, unit, v, w, scene.at.q)
        return StepResult(state, lam, outcome, jnp.asarray(1), jnp.where(fine, 0.0, jnp.inf))

    def linearize(
        self,
        xs: State,
        z: Array,
        u: Array,
        t: Array,
        k: Array,
        model: TreeModel,  # type: ignore[override]
        tangent: Any = None,
    ) -> Blocks:
        """In closed form but for forces at frames, forces on joint coordinates, and numbers of other parts."""
        h, half = self.step_size(k), self.nx(model) // 2
        x1 = jax.tree.map(lambda a: a[1], xs)
        now, by, (balance, others) = self._linear(xs, z, u, t, k, model, tangent)
        shifted = kinematic_slopes(x1, now.turned, h)
        empty, none = jnp.zeros((half, half)), jnp.zeros_like(by.new)
        x = [
            [[by.pose, by.rate], [shifted[0], empty], [by.old]],
            [[empty, by.mass], [shifted[1], shifted[2]], [none, by.new]],
        ]
        by_x = jnp.stack([jnp.concatenate([jnp.concatenate(row, 1) for row in rows]) for rows in x])
        by_z, by_u, by_theta = (
            jnp.concatenate([top, jnp.zeros((half, top.shape[1])), bottom])
            for top, bottom in ((by.pulled, by.held), (by.pushed, by.driven), (balance, others))
        )
        return Blocks(now.r, by_x, by_z, by_u, by_theta)

    def unknowns(self, model: TreeModel) -> int:  # type: ignore[override]
        return self.nx(model) // 2 + self.nz(model)

    def system(  # type: ignore[override]
        self, xs: State, z: Array, u: Array, t: Array, k: Array, model: TreeModel, tangent: Any = None
    ) -> tuple[Array, Array]:
        """For new velocities and impulses: new poses follow from them alone."""
        now, by, theta = self._linear(xs, z, u, t, k, model, tangent)
        half = by.mass.shape[0]
        balance, others = -now.r[:half, None], -now.r[2 * half :, None]
        A = jnp.block([[by.mass, by.pulled], [by.new, by.held]])
        known = [
            [jnp.eye(half), -by.pose, -by.rate, -theta[0], balance],
            [jnp.zeros((len(others), half)), -by.old, -theta[1], others],
        ]
        return A, jnp.concatenate([jnp.concatenate(row, 1) for row in known])

    def system_rows(self, model: TreeModel) -> np.ndarray:  # type: ignore[override]
        half = self.nx(model) // 2
        return np.delete(np.arange(len(self.rows(model))), np.arange(half, 2 * half))

    def completed(  # type: ignore[override]
        self, xs: State, k: Array, model: TreeModel, solved: Array
    ) -> tuple[Array, Array]:
        x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (0, 1))
        half, h = self.nx(model) // 2, self.step_size(k)
        moved, turned = _followed(x0, x1, h)
        poses = new_poses(x1, turned, h, solved[:half], half).at[:, -1].add(-moved)
        return jnp.concatenate([poses, solved[:half]]), solved[half:]

    def _linear(
        self, xs: State, z: Array, u: Array, t: Array, k: Array, model: TreeModel, tangent: Any
    ) -> tuple[Balance, Slopes, tuple[Array, Array]]:
        """The residual with its slopes; then those of balances and of other rows by the parameters."""
        x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (0, 1))
        h, half = self.step_size(k), self.nx(model) // 2
        scene = scene_of(model, x0)
        G = linear.jacobian(scene.at)
        now = self._residual(x0, x1, z, u, t, h, model, scene, G)
        by = slopes(now, scene, G, x0, x1, z, u, t, h, model)
        rest, moved = without(model, tangent, "pseudo")
        if moved is None or len(now.box.index):
            theta = along(lambda m: self.residual(xs, z, u, t, k, m), model, tangent, now.r)
            return now, by, (theta[:half], theta[2 * half :])
        balance, others = by_bodies(by, now, scene, G, x0, x1, z, u, h, model, bodies_along(model, moved))
        if parameter_count(rest):
            # where neither bodies nor rows move, they need not be looked at again
            fixed = moves_only_forces(model, rest)

            def again(m: TreeModel) -> Array:
                if fixed:
                    return self._residual(x0, x1, z, u, t, h, m, scene, G).r
                return self.residual(xs, z, u, t, k, m)

            more = along(again, model, rest, now.r)
            balance, others = balance + more[:half], others + more[2 * half :]
        return now, by, (balance, others)

    def reactions(self, z: Array, h: Array, model: TreeModel) -> Array:  # type: ignore[override]
        """Those of loops, couplings and drives; λ acts by +Gᵀ."""
        count = counts(model)
        return z[count.contacts :][count.held - model.nc : count.held] / h

    def _rows(self, model: TreeModel, h: Array, g: Array) -> Rows:
        named = self.constraints
        if named is not None and not isinstance(named, ByRow):
            raise MechidError("Spook has constraints by name: say stepper.on(mechanism) first.")
        soft = Softness(
            self.compliance, self.rotational_compliance, self.relaxation_time, self.rotational_relaxation_time
        )
        return regularised(soft, named, model, h, g)

    def _joint_force(
        self, x: State, rates: Array, u: Array, t: Array, model: TreeModel, at: linear.Placed
    ) -> Array:
        """Of elements on joint coordinates, and what armatures need for the coordinates' bend."""
        force = elements.joint_force(model, at.q, rates, u, t)
        force -= elements.joint_potential_gradient(model, at.q)
        # damping acts at the end of the step
        force += elements.weighed(model, model.damping[:, 0], rates)
        bend = linear.bend(at, linear.pairs(at, x.r, x.v, x.w))
        return force - elements.weighed(model, model.armature, bend)


def _felt(model: TreeModel, scene: Scene, rates: Array) -> Array:
    """Inertia of the bodies, armatures along the coordinates included."""
    return mass_matrix(scene) + rates.T @ elements.weighed(model, model.armature, rates)


register(Spook, ["dt", *NUMBERS, "constraints"])


def _followed(x0: State, x1: State, h: Array) -> tuple[Array, Array]:
    """How far new poses are from following from new velocities, and the turns of it."""
    turned = turn_between(linear.products(exp_of(h * x1.w), x0.e), x1.e)
    return jnp.concatenate([x1.r - x0.r - h * x1.v, turned]).reshape(-1), turned
