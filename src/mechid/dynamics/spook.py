"""SPOOK: regularised time stepping in maximal coordinates (Marklund, Eqs. 2.8–2.16, signs as in mechanics).

Every body has a centre of mass r, a unit quaternion e and a velocity [v ; ω]. Joints and loops are constraints
g(x) with Jacobian G, compliance ε and relaxation time τ. With γ = 1/(1 + 4τ/h), one step solves

    [ M  −Gᵀ ] [v⁺]   [ M v + h f                 ]
    [ G   Σ  ] [λ ] = [ −(4/h) γ g + γ G v        ]      Σ = (4/h²) ε γ,   f with gyroscopic moment

and moves x⁺ = x ⊞ h v⁺. λ is an impulse and stays an explicit unknown: eliminating it would make the step's
Jacobian ill-conditioned as joints stiffen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics import dry, elements
from mechid.dynamics import spook_linear as linear
from mechid.dynamics.contacts import felt, grip, stop_rows
from mechid.dynamics.loops import Attached, joint_rows
from mechid.dynamics.model import TreeModel
from mechid.dynamics.rotations import quaternion_of_rotation, quaternion_of_vector, vector_of_quaternion
from mechid.dynamics.stepper import Blocks, Outcome, RowKind, Stepper, StepResult, along, columns
from mechid.dynamics.tree import Array, cross, kinematics, spread, take
from mechid.errors import MechidError
from mechid.model.geometry import finite


class State(NamedTuple):
    r: Array
    """(b, 3) centres of mass, m"""
    e: Array
    """(b, 4) unit quaternions, scalar first, world from body"""
    v: Array
    """(b, 3) m/s"""
    w: Array
    """(b, 3) rad/s, world axes"""


class Rows(NamedTuple):
    """How the constraints pull: (c,) for geometric rows, couplings, drives."""

    sigma: Array
    """regularisation Σ"""
    stiff: Array
    gamma: Array
    """a row is to move at −stiff g + gamma G v"""


@dataclass(frozen=True, eq=False)
class Spook(Stepper):
    """Regularised maximal-coordinate stepper, first order in dt.

    Angles are read off the bodies within ±π: an element that depends on an angle (a spring, a coupling, a drive)
    must not turn further.
    """

    dt: Any
    """s"""
    compliance: Any = 1e-10
    """of rows in m: m/N"""
    rotational_compliance: Any = None
    """of rows in rad: rad/(N·m); as `compliance` where None"""
    relaxation_time: Any = None
    """s; two steps where None"""

    window = 1
    products = True
    wraps = True

    def nx(self, model: TreeModel) -> int:  # type: ignore[override]
        return 12 * model.maximal.link.shape[0]

    def nz(self, model: TreeModel) -> int:  # type: ignore[override]
        return sum(_counts(model))

    def rows(self, model: TreeModel) -> tuple[RowKind, ...]:  # type: ignore[override]
        half, count = self.nx(model) // 2, _counts(model)
        kinds = (RowKind.DYNAMIC,) * half + (RowKind.KINEMATIC,) * half
        boxed = (RowKind.FRICTION,) * (count.stops + count.dry)
        return kinds + (RowKind.FRICTION,) * count.contacts + (RowKind.HARD,) * count.held + boxed

    def check(self, model: TreeModel, steps: int) -> None:  # type: ignore[override]
        super().check(model, steps)
        for name in ("compliance", "rotational_compliance", "relaxation_time"):
            value = getattr(self, name)
            if value is not None and finite(value, (), f"The {name} of Spook") < 0.0:
                raise MechidError(f"The {name} of Spook must be ≥ 0, not {value}.")
        if not isinstance(model, TreeModel):
            raise MechidError("Spook moves mechanisms of bodies and joints only, not other models.")

    # States: R³ and unit quaternions, ⊞ from the left

    def initial(self, model: TreeModel, q: Array, v: Array, u: Array, t: Array) -> State:  # type: ignore[override]
        at = kinematics(model, q)
        link = model.maximal.link
        pose, twist = at.pose[link], (model.ancestry[:-1] @ (at.twist_axes * v[:, None]))[link]
        _, com, _ = _inertias(model)
        r = jnp.einsum("bij,bj->bi", pose[:, :3, :3], com) + pose[:, :3, 3]
        e = jax.vmap(quaternion_of_rotation)(pose[:, :3, :3])
        return State(r, e, twist[:, 3:] + cross(twist[:, :3], r), twist[:, :3])

    def retract(self, x: State, d: Array) -> State:
        dr, turn, dv, dw = d.reshape(4, -1, 3)
        return State(x.r + dr, linear.products(_exp(turn), x.e), x.v + dv, x.w + dw)

    def local(self, x: State, y: State) -> Array:
        return jnp.concatenate([y.r - x.r, _turn(x.e, y.e), y.v - x.v, y.w - x.w]).reshape(-1)

    def positions(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        """Joint coordinates read off the bodies' relative poses; angles within ±π."""
        return _scene(model, x).at.q

    def boxed_positions(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        at, k = _scene(model, x).at, model.contacts.blur.shape[0]
        on_joints = jnp.concatenate([model.stops.index, model.dry.index]).astype(int)
        return jnp.concatenate([linear.dot(at.n, at.gap)[:k], at.q[on_joints]])

    def velocities(  # type: ignore[override]
        self, model: TreeModel, x: State, u: Array, driven: Array
    ) -> Array:
        return linear.jacobian(_scene(model, x).at)[-model.nq :] @ _stacked(x)

    def inertia(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        """M + Gᵀ Σ⁻¹ G (Marklund, 3.14): joints resist as much as their compliance lets them."""
        scene, count = _scene(model, x), _counts(model)
        G = linear.jacobian(scene.at)
        rates = G[-model.nq :]
        h, apart = self.step_size(jnp.asarray(0)), jnp.zeros(count.closing)
        sigma = self._rows(model, scene, h, apart).sigma[count.contacts :][: count.held]
        _, slope = joint_rows(model, scene.at.q, jnp.zeros(model.nu))
        closing = jnp.concatenate([G[count.contacts : -model.nq], slope @ rates])
        stiff = jnp.where(sigma > 0.0, 1.0 / jnp.where(sigma > 0.0, sigma, 1.0), 0.0)
        return _mass_matrix(scene) + (rates.T * model.armature) @ rates + (closing.T * stiff) @ closing

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
        scene = _scene(model, x0)
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
        z, stuck = _split(model, z)
        rates = G @ jnp.stack([_stacked(x0), _stacked(x1)], -1)
        closure, slope = _coordinate_rows(model, at.q, u)
        joint = model.armature * (rates[c:, 1] - rates[c:, 0]) + h * model.damping[:, 0] * rates[c:, 1]
        joint -= h * self._joint_force(x0, rates[c:, 0], u, t, model, at) + slope.T @ z[c:]
        joint -= spread(stuck, model.dry.index, model.nq)
        weights = jnp.concatenate([-z[:c], joint])
        body = _impulses(scene, x1.v - x0.v, x1.w - x0.w)
        body -= h * _body_forces(model, x0, scene, u)
        g = jnp.concatenate([linear.dot(at.n, at.gap)[:c], closure])
        rows = self._rows(model, scene, h, g)
        old, new = jnp.concatenate([rates[:c], slope @ rates[c:]]).T
        closing = closed = new + rows.sigma * z + rows.stiff * g - rows.gamma * old
        box = _box(model, z)
        if len(box.index):
            i = box.index
            held = dry.boxed(z[i], closing[i], box.bound, box.inertia, box.blur, box.one_sided)
            closing = closing.at[i].set(held)
        turned = _turn(linear.products(_exp(h * x1.w), x0.e), x1.e)
        kinematic = jnp.concatenate([x1.r - x0.r - h * x1.v, turned]).reshape(-1)
        on = model.dry.index
        U = _loads(model)
        bound = h * dry.level(model.dry.values, rates[c:, 0][on]) + U @ jnp.abs(z)
        inertia = dry.felt(model) if on.shape[0] else jnp.zeros(0)
        held = dry.row(stuck, rates[c:, 1][on], bound, inertia, model.dry.blur)
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
        scene, old = _scene(model, x0), _stacked(x0)
        G = linear.jacobian(scene.at)
        c, half = G.shape[0] - model.nq, old.shape[0]
        rates = G[c:]
        closure, slope = _coordinate_rows(model, scene.at.q, u)
        own = _mass_matrix(scene) + (rates.T * model.armature) @ rates
        mass = own + h * (rates.T * model.damping[:, 0]) @ rates
        force = _body_forces(model, x0, scene, u).reshape(-1)
        force += rates.T @ self._joint_force(x0, rates @ old, u, t, model, scene.at)
        g = jnp.concatenate([linear.dot(scene.at.n, scene.at.gap)[:c], closure])
        rows = self._rows(model, scene, h, g)
        closing = jnp.concatenate([G[:c], slope @ rates])
        target = rows.gamma * (closing @ old) - rows.stiff * g
        box = _box(model, jnp.zeros(len(target)))
        held = np.delete(np.arange(len(target)), box.index)
        kkt = jnp.block([[mass, -closing[held].T], [closing[held], jnp.diag(rows.sigma[held])]])
        right = jnp.concatenate([own @ old + h * force, target[held]])
        if not len(box.index) + model.dry.index.shape[0]:
            solved, error = jnp.linalg.solve(kkt, right), 0.0
            lam = solved[half:]
        else:
            on = model.dry.index
            firm = dry.felt(model) if on.shape[0] else jnp.zeros(0)
            boxed = Boxed(
                jnp.concatenate([closing[box.index], rates[on]]),
                jnp.concatenate([rows.sigma[box.index], dry.CREEP / firm]),
                jnp.concatenate([target[box.index], jnp.zeros(on.shape[0])]),
                jnp.concatenate(
                    [jnp.zeros(len(box.index)), h * dry.level(model.dry.values, rates[on] @ old)]
                ),
                np.concatenate([box.one_sided, np.zeros(on.shape[0], bool)]),
                box.index,
            )
            solved, lam, error = self._with_boxes(kkt, right, boxed, model, guess[1])
        new = solved[:half]
        moved = self.retract(x0, jnp.concatenate([h * new, jnp.zeros(half)]))
        v, w = new.reshape(2, -1, 3)
        fine = jnp.all(jnp.isfinite(solved))
        ended = jnp.where(error > dry.OPEN, int(Outcome.STALLED), int(Outcome.SOLVED))
        outcome = jnp.where(fine, ended, int(Outcome.SINGULAR))
        state = State(moved.r, moved.e / jnp.linalg.norm(moved.e, axis=-1, keepdims=True), v, w)
        return StepResult(state, lam, outcome, jnp.asarray(1), jnp.where(fine, 0.0, jnp.inf))

    def _with_boxes(
        self, kkt: Array, right: Array, boxed: Boxed, model: TreeModel, guess: Array
    ) -> tuple[Array, Array, Array]:
        """Velocities, then all impulses, and what is left of the boxed rows (2.27).

        Everything that is held from both sides is eliminated (Schur complement), so that boxes alone remain.
        """
        count, half, b = _counts(model), boxed.rows.shape[1], boxed.rows.shape[0]
        pushed = jnp.concatenate([boxed.rows, jnp.zeros((b, kkt.shape[0] - half))], 1)
        both = jnp.linalg.solve(kkt, jnp.concatenate([right[:, None], pushed.T], 1))
        free, moved = both[:, 0], both[:, 1:]
        # the loads: impulses of joints, then those across planes
        k, joints = count.contacts // 3, model.maximal.row_to.link.shape[0]
        across = jnp.eye(k, b)
        U = jnp.zeros((b, joints + k))
        U = U.at[b - count.dry :, :joints].set(_loads(model)[:, count.contacts : count.contacts + joints])
        U = U.at[k : 3 * k, joints:].set(jnp.repeat(jnp.diag(model.contacts.friction), 2, axis=0))
        slide = dry.Slide(
            boxed.rows @ free[:half] - boxed.target,
            boxed.rows @ moved[:half],
            boxed.sigma,
            boxed.bound,
            jnp.concatenate([free[half : half + joints], jnp.zeros(k)]),
            jnp.concatenate([moved[half : half + joints], across]),
            U,
            boxed.one_sided,
        )
        places = np.concatenate([boxed.index, count.closing + np.arange(count.dry)]).astype(int)
        impulses, error = dry.solved(slide, guess[places])
        ended = free + moved @ impulses
        z = jnp.zeros(sum(count)).at[places].set(impulses)
        z = z.at[np.delete(np.arange(count.closing), boxed.index)].set(ended[half:])
        return ended, z, error

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
        """In closed form but for forces at frames, forces on joint coordinates, and the model's numbers."""
        x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (0, 1))
        h, half, n = self.step_size(k), self.nx(model) // 2, model.nq
        scene = _scene(model, x0)
        at, G = scene.at, linear.jacobian(scene.at)
        c = G.shape[0] - n
        now = self._residual(x0, x1, z, u, t, h, model, scene, G)
        rates, rows, slope = G[c:], now.rows, now.slope
        z, stuck = _split(model, z)
        closing = jnp.concatenate([G[:c], slope @ rates])

        # dP of the forces along coordinates, by poses and by velocities
        pair = linear.pairs(at, x0.r, x0.v, x0.w)
        moved = linear.rate_slopes(at, rows.gamma[:c], jnp.stack([x0.v, x1.v]), jnp.stack([x0.w, x1.w]))
        shown, rates0, rates1 = moved[:c], moved[c : c + n], moved[c + n :]
        by_q, by_v = self._joint_slopes(at.q, now.rates[:, 0], u, t, model)
        by_v, damped = by_v + jnp.diag(model.damping[:, 0]), h * model.damping[:, :1]
        bent = linear.bend_slopes(at, pair)
        armature = model.armature[:, None]
        joint_pose = armature * (rates1 - rates0) + damped * rates1 - h * (by_q @ rates + by_v @ rates0)
        joint_pose += h * armature * bent[:, :half]
        joint_rate = -armature * rates - h * (by_v @ rates) + h * armature * bent[:, half:]
        coupled = jnp.concatenate([shown, slope @ rates1 - rows.gamma[c:, None] * (slope @ rates0)])
        if model.coupling.shape[0]:
            slopes = jax.jacfwd(lambda q: joint_rows(model, q, u)[1])(at.q)
            along_rows = slice(c, c + slopes.shape[0])
            joint_pose -= jnp.einsum("cnm,c->nm", slopes, z[along_rows]) @ rates
            seen = now.rates[:, 1] - rows.gamma[along_rows, None] * now.rates[:, 0]
            bent_rows = jnp.einsum("cnm,cn->cm", slopes, seen) @ rates
            coupled += jnp.pad(bent_rows, ((c, coupled.shape[0] - c - slopes.shape[0]), (0, 0)))

        own, shifted = self._own_slopes(x0, x1, now.turned, h, scene)
        pose = linear.pull_slopes(at, now.weights) + rates.T @ joint_pose + own[0]
        rate = rates.T @ joint_rate + own[1]
        mass = (rates.T * (model.armature + damped[:, 0])) @ rates + own[2]
        by_u = -h * (rates.T @ model.motor)
        if model.wrenches.frame.shape[0] or model.line_springs.values.shape[0]:
            by_d, framed = self._frame_slopes(x0, u, model)
            pose, rate = pose - h * by_d[:, :half], rate - h * by_d[:, half:]
            by_u -= h * framed

        empty, none = jnp.zeros((half, half)), jnp.zeros_like(closing)
        shown = coupled + rows.stiff[:, None] * closing
        by_x = [
            [[pose, rate], [shifted[0], empty], [shown, -rows.gamma[:, None] * closing]],
            [[empty, mass], [shifted[1], shifted[2]], [none, closing]],
        ]
        by_z = jnp.concatenate([-closing.T, jnp.zeros((half, z.shape[0])), jnp.diag(rows.sigma)])
        drives = jax.nn.one_hot(model.drive_index[:, 1], u.shape[0])
        after = model.stops.index.shape[0]
        before = z.shape[0] - drives.shape[0] - after
        shut = -jnp.pad(drives, ((before, after), (0, 0))) * rows.stiff[:, None]
        by_u = jnp.concatenate([by_u, jnp.zeros((half, u.shape[0])), shut])
        x = jnp.stack([jnp.block(x) for x in by_x])
        if len(now.box.index):
            x, by_z, by_u = self._boxed_slopes(now, z, x, by_z, by_u, model)
        on = model.dry.index
        if on.shape[0]:
            own, by_rate, by_bound = dry.slopes(
                stuck, now.rates[on, 1], now.bound, dry.felt(model), model.dry.blur
            )
            steep = jax.vmap(jax.grad(dry.level, argnums=1))(model.dry.values, now.rates[on, 0])
            before = jnp.concatenate([rates0[on], rates[on]], 1) * (by_bound * h * steep)[:, None]
            turned = jnp.pad(rates1[on], ((0, 0), (0, half))) * by_rate[:, None]
            pushed = jnp.pad(rates[on], ((0, 0), (half, 0))) * by_rate[:, None]
            x = jnp.concatenate([x, jnp.stack([before + turned, pushed])], 1)
            loads = by_bound[:, None] * _loads(model) * jnp.sign(z)
            acts = jnp.pad(-rates[on].T, ((0, by_z.shape[0] - half), (0, 0)))
            by_z = jnp.block([[by_z, acts], [loads, jnp.diag(own)]])
            by_u = jnp.pad(by_u, ((0, on.shape[0]), (0, 0)))
            z = jnp.concatenate([z, stuck])
        by_theta = along(lambda m: self.residual(xs, z, u, t, k, m), model, tangent, now.r)
        return Blocks(now.r, x, by_z, by_u, by_theta)

    def _boxed_slopes(
        self, now: Balance, z: Array, x: Array, by_z: Array, by_u: Array, model: TreeModel
    ) -> tuple[Array, Array, Array]:
        """The same slopes with those of stops and contacts in the place of rows that are held from both sides."""
        box, first = now.box, x.shape[1] - now.closing.shape[0]
        i = box.index
        given = (z[i], now.closing[i], box.bound, box.inertia, box.blur, box.one_sided)
        own, by_rate, by_bound = dry.boxed_slopes(*given)
        at, k = first + i, model.contacts.friction.shape[0]
        scale = by_rate[:, None]
        by_z = by_z.at[at].multiply(scale).at[at, i].add(own)
        across = np.repeat(np.arange(k), 2)
        gripped = by_bound[k : 3 * k] * model.contacts.friction[across] * jnp.sign(z[across])
        by_z = by_z.at[first + k + np.arange(2 * k), across].add(gripped)
        return x.at[:, at].multiply(scale), by_z, by_u.at[at].multiply(scale)

    def reactions(self, z: Array, h: Array, model: TreeModel) -> Array:  # type: ignore[override]
        """Those of loops, couplings and drives; λ acts by +Gᵀ."""
        count = _counts(model)
        return z[count.contacts :][count.held - model.nc : count.held] / h

    def _relaxation(self, h: Array) -> Array:
        return 2.0 * h if self.relaxation_time is None else jnp.asarray(self.relaxation_time)

    def _rows(self, model: TreeModel, scene: Scene, h: Array, g: Array) -> Rows:
        """How each row is regularised. A driven row is to arrive within the step; what is held from one side only
        may come to rest within it, and is pushed out as gently as the others where it has gone too far."""
        own, count = model.maximal, _counts(model)
        gamma = 1.0 / (1.0 + 4.0 * self._relaxation(h) / h)
        metres = self.compliance
        radians = metres if self.rotational_compliance is None else self.rotational_compliance
        on_joints = jnp.concatenate([model.coupling_index[:, 0], model.drive_index[:, 0], model.stops.index])
        body_of = own.body_of
        turning = [
            np.zeros(count.contacts, bool),
            own.row_to.link == own.row_start.link,
            body_of[model.row_to.link] == body_of[model.row_start.link],
            model.revolute[on_joints] > 0,
        ]
        sigma = 4.0 / h**2 * gamma * jnp.where(jnp.concatenate(turning), radians, metres)
        number, end = np.arange(count.closing), count.closing - count.stops
        driven = (number >= end - model.drive_index.shape[0]) & (number < end)
        stiff = jnp.where(driven, 1.0 / h, 4.0 / h * gamma)
        one_sided = (number < count.contacts // 3) | (number >= end)
        stiff = jnp.where(one_sided & (g > 0.0), 1.0 / h, stiff)
        along = (number >= count.contacts // 3) & (number < count.contacts)
        if count.contacts:
            sigma = jnp.where(along, dry.CREEP / jnp.sum(scene.mass), sigma)
        free = driven | one_sided | along
        return Rows(sigma, jnp.where(along, 0.0, stiff), jnp.where(free, 0.0, gamma))

    def _joint_force(
        self, x: State, rates: Array, u: Array, t: Array, model: TreeModel, at: linear.Placed
    ) -> Array:
        """Of elements on joint coordinates, and what armatures need for the coordinates' bend."""
        force = elements.joint_force(model, at.q, rates, u, t)
        force -= elements.joint_potential_gradient(model, at.q)
        # damping acts at the end of the step
        force += model.damping[:, 0] * rates
        return force - model.armature * linear.bend(at, linear.pairs(at, x.r, x.v, x.w))

    def _joint_slopes(self, q: Array, v: Array, u: Array, t: Array, model: TreeModel) -> tuple[Array, Array]:
        """Of the elements' forces on joint coordinates by q and by its rates."""

        def felt(q: Array, v: Array) -> Array:
            return elements.joint_force(model, q, v, u, t) - elements.joint_potential_gradient(model, q)

        if model.functions:
            by_q, by_v = jax.jacfwd(felt, argnums=(0, 1))(q, v)
            return by_q, by_v
        # each feels its own coordinate only
        one, none = jnp.ones_like(q), jnp.zeros_like(q)
        by_q, by_v = (jax.jvp(felt, (q, v), d)[1] for d in ((one, none), (none, one)))
        return jnp.diag(by_q), jnp.diag(by_v)

    def _own_slopes(
        self, x0: State, x1: State, turned: Array, h: Array, scene: Scene
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """What each body does alone: its balance by poses, by old and by new velocities; its kinematic row by old
        poses, by new ones and by new velocities. (6 b, 6 b) each."""
        J, b = scene.inertia, x0.r.shape[0]
        by_turn, by_spin = linear.spin_slopes(J, x1.w - x0.w, x0.w, h)
        inverse, forward = linear.turn_slopes(turned, h * x1.w)
        back = -jnp.swapaxes(inverse, 1, 2)
        stepped = back @ linear.rotations(_exp(h * x1.w))
        turning = jnp.stack([by_turn, by_spin - J, J, stepped, inverse, h * back @ forward])
        m, one = scene.mass, jnp.ones(b)
        scales = jnp.stack([jnp.zeros(b), -m, m, -one, one, -h * one])
        along_axes = scales[:, :, None, None] * jnp.eye(3)
        every = linear.diagonal(jnp.concatenate([along_axes, turning], 1))
        return (every[0], every[1], every[2]), (every[3], every[4], every[5])

    def _frame_slopes(self, x: State, u: Array, model: TreeModel) -> tuple[Array, Array]:
        """Of wrenches and line springs, by the state and by the inputs."""

        def felt(d: Array, u: Array, m: TreeModel) -> Array:
            moved = self.retract(x, d)
            return _frame_forces(m, moved, _scene(m, moved), u).reshape(-1)

        _, (by_d, by_u), _ = columns(felt, (jnp.zeros(self.nx(model)), u), model, None)
        return by_d, by_u


register(Spook, ["dt", "compliance", "rotational_compliance", "relaxation_time"])


class Scene(NamedTuple):
    """Every body's pose and inertia at a state, and the rows there."""

    R: Array
    """(b, 3, 3)"""
    com: Array
    """(b, 3) in the bodies' frames"""
    mass: Array
    inertia: Array
    """(b, 3, 3) about the centre of mass, world axes"""
    at: linear.Placed


class Balance(NamedTuple):
    """The residual with what its derivatives use again."""

    r: Array
    weights: Array
    """what geometric rows and coordinates pull by Gᵀ"""
    rates: Array
    """(n, 2) of the coordinates, old and new"""
    turned: Array
    slope: Array
    """∂h/∂q of couplings and drives"""
    rows: Rows
    bound: Array
    """(d,) of friction's impulses"""
    box: Box
    closing: Array
    """rates of all rows that close, boxed or not"""


class Counts(NamedTuple):
    """Impulses, in their order."""

    contacts: int
    held: int
    """joints, loops, couplings, drives"""
    stops: int
    dry: int

    @property
    def closing(self) -> int:
        return self.contacts + self.held + self.stops


class Box(NamedTuple):
    """Rows held from one side, and friction along planes."""

    index: np.ndarray
    """among all rows that close"""
    one_sided: np.ndarray
    bound: Array
    inertia: Array
    blur: Array


class Boxed(NamedTuple):
    """Everything with a bounded impulse in a step: contacts, stops, dry friction."""

    rows: Array
    """(b, 6 bodies) Jacobian"""
    sigma: Array
    target: Array
    """rates that they are to move at, or more"""
    bound: Array
    one_sided: np.ndarray
    index: np.ndarray
    """of contacts and stops among the rows that close"""


def _counts(model: TreeModel) -> Counts:
    return Counts(
        model.contacts.to.link.shape[0],
        model.maximal.row_to.link.shape[0] + model.nc,
        model.stops.index.shape[0],
        model.dry.index.shape[0],
    )


def _box(model: TreeModel, z: Array) -> Box:
    count = _counts(model)
    k, stops = count.contacts // 3, count.stops
    index = np.concatenate([np.arange(count.contacts), count.closing - stops + np.arange(stops)]).astype(int)
    one_sided = np.repeat([True, False, True], [k, 2 * k, stops])
    if not len(index):
        return Box(index, one_sided, *[jnp.zeros(0)] * 3)
    bound = jnp.concatenate([jnp.zeros(k), grip(model.contacts, z[:k]), jnp.zeros(stops)])
    blur = jnp.concatenate([model.contacts.blur, model.stops.blur])
    return Box(index, one_sided, bound, felt(model)[: len(index)], blur)


def _coordinate_rows(model: TreeModel, q: Array, u: Array) -> tuple[Array, Array]:
    """Rows on joint coordinates with their slopes: couplings, drives, stops."""
    if not model.stops.index.shape[0]:
        return joint_rows(model, q, u)
    both = joint_rows(model, q, u), stop_rows(model.stops, q)
    return tuple(jnp.concatenate(parts) for parts in zip(*both, strict=True))  # type: ignore[return-value]


def _scene(model: TreeModel, x: State) -> Scene:
    mass, com, inertia = _inertias(model)
    R = linear.rotations(x.e)
    turned = R @ inertia @ jnp.swapaxes(R, 1, 2)
    return Scene(R, com, mass, turned, linear.placed(model, R, x.r, com))


def _split(model: TreeModel, z: Array) -> tuple[Array, Array]:
    """Multipliers of joints, loops, couplings and drives; impulses of friction."""
    count = z.shape[0] - model.dry.index.shape[0]
    return z[:count], z[count:]


def _loads(model: TreeModel) -> Array:
    """(d, closing rows) U: how each impulse of a joint adds to the bound of friction on its coordinates (F.4)."""
    own, count = model.maximal, _counts(model)
    turning = own.row_to.link == own.row_start.link
    coefficient, radius = model.dry.values[:, 4:].T
    carried = own.owner[model.dry.index][:, None] == own.row_to.link[None]
    loads = carried * coefficient[:, None] * jnp.where(turning[None], 1.0, radius[:, None])
    others = count.closing - count.contacts - turning.shape[0]
    return jnp.pad(loads, ((0, 0), (count.contacts, others)))


def _exp(turn: Array) -> Array:
    return jax.vmap(quaternion_of_vector)(turn)


def _turn(e0: Array, e1: Array) -> Array:
    """(b, 3) rotation vectors from e0 to e1."""
    return jax.vmap(vector_of_quaternion)(linear.products(e1, e0 * linear.CONJUGATE))


def _stacked(x: State) -> Array:
    """(6 b,) velocities of all bodies, then angular velocities."""
    return jnp.concatenate([x.v, x.w]).reshape(-1)


def _inertias(model: TreeModel) -> tuple[Array, Array, Array]:
    """Mass, centre of mass and inertia about it of each body, in its frame; a massless one sits at its origin."""
    pseudo = model.pseudo[model.maximal.link]
    m, first = pseudo[:, 3, 3], pseudo[:, :3, 3]
    com = first / jnp.where(m > 0.0, m, 1.0)[:, None]
    sigma = pseudo[:, :3, :3] - first[:, :, None] * com[:, None]
    trace = jnp.trace(sigma, axis1=-2, axis2=-1)
    return m, com, trace[:, None, None] * jnp.eye(3) - sigma


def _mass_matrix(scene: Scene) -> Array:
    masses = jnp.diag(jnp.repeat(scene.mass, 3))
    zero = jnp.zeros_like(masses)
    return jnp.block([[masses, zero], [zero, linear.diagonal(scene.inertia)]])


def _impulses(scene: Scene, dv: Array, dw: Array) -> Array:
    """(2, b, 3) m dv and J dω."""
    return jnp.stack([scene.mass[:, None] * dv, jnp.sum(scene.inertia * dw[:, None], -1)])


def _body_forces(model: TreeModel, x: State, scene: Scene, u: Array) -> Array:
    """(2, b, 3) forces and moments about the centres of mass: weight, gyroscopic moment, forces at frames."""
    turned = jnp.sum(scene.inertia * x.w[:, None], -1)
    return jnp.stack([scene.mass[:, None] * model.gravity, cross(turned, x.w)]) + _frame_forces(
        model, x, scene, u
    )


def _frame_forces(model: TreeModel, x: State, scene: Scene, u: Array) -> Array:
    """(2, b, 3) forces and moments about the centres of mass of wrenches and line springs."""
    count = scene.mass.shape[0]
    p = x.r - jnp.einsum("bij,bj->bi", scene.R, scene.com)
    R = jnp.concatenate([scene.R, jnp.eye(3)[None]])
    p, r, v, w = (jnp.concatenate([a, jnp.zeros((1, 3))]) for a in (p, x.r, x.v, x.w))
    total = jnp.zeros((2, count + 1, 3))
    body_of = model.maximal.body_of
    wrenches, lines = model.wrenches, model.line_springs
    if wrenches.frame.shape[0]:
        body = body_of[model.frame_link[wrenches.frame]]
        pose = model.frame_pose[wrenches.frame]
        where = jnp.einsum("wij,wj->wi", R[body], pose[:, :3, 3]) + p[body]
        own = wrenches.body_axes[:, None, None]
        axes = own * (R[body] @ pose[:, :3, :3]) + (1.0 - own) * jnp.eye(3)
        six = jax.nn.one_hot(wrenches.channel, u.shape[0]) @ u
        force = jnp.einsum("wij,wj->wi", axes, six[:, :3])
        moment = jnp.einsum("wij,wj->wi", axes, six[:, 3:]) + cross(where - r[body], force)
        total = total.at[0, body].add(force).at[1, body].add(moment)
    if lines.values.shape[0]:
        k, k3, rest, c = lines.values.T
        ends = [_points(R, p, _on_bodies(model, a)) for a in (lines.start, lines.end)]
        bodies = [body_of[a.link] for a in (lines.start, lines.end)]
        speed = [v[b] + cross(w[b], y - r[b]) for b, y in zip(bodies, ends, strict=True)]
        gap = ends[1] - ends[0]
        length = jnp.sqrt(jnp.sum(gap * gap, -1) + 1e-30)
        along = gap / length[:, None]
        stretch = length - rest
        pull = k * stretch + k3 * stretch**3 + c * jnp.sum(along * (speed[1] - speed[0]), -1)
        for b, y, sign in zip(bodies, ends, (1.0, -1.0), strict=True):
            force = sign * pull[:, None] * along
            total = total.at[0, b].add(force).at[1, b].add(cross(y - r[b], force))
    return total[:, :count]


def _on_bodies(model: TreeModel, attached: Attached) -> Attached:
    return Attached(model.maximal.body_of[attached.link], attached.vector)


def _points(R: Array, p: Array, where: Attached) -> Array:
    turned = jnp.einsum("rij,rj->ri", take(R, where.link), where.vector)
    return turned + take(p, where.link)
