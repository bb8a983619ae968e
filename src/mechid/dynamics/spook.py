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

from mechid.dynamics import elements
from mechid.dynamics.loops import Attached, joint_rows
from mechid.dynamics.model import TreeModel
from mechid.dynamics.rotations import (
    conjugate,
    product,
    quaternion_of_rotation,
    quaternion_of_vector,
    rotation_of_quaternion,
    vector_of_quaternion,
)
from mechid.dynamics.stepper import Blocks, Outcome, RowKind, Stepper, StepResult, columns
from mechid.dynamics.tree import Array, cross, kinematics, take
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
    """Constraints at one configuration."""

    g: Array
    G: Array
    """(c, 6 b): by velocities of all bodies, then angular velocities"""
    turning: Array
    """(c,) 1 for rows in rad, 0 for rows in m"""
    driven: Array
    """(c,) 1 for rows that follow an input"""


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
    wraps = True

    def nx(self, model: TreeModel) -> int:  # type: ignore[override]
        return 12 * model.maximal.link.shape[0]

    def nz(self, model: TreeModel) -> int:  # type: ignore[override]
        return model.maximal.row_to.link.shape[0] + model.nc

    def rows(self, model: TreeModel) -> tuple[RowKind, ...]:  # type: ignore[override]
        half = self.nx(model) // 2
        return (RowKind.DYNAMIC,) * half + (RowKind.HARD,) * (half + self.nz(model))

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
        e = jax.vmap(product)(jax.vmap(quaternion_of_vector)(turn), x.e)
        return State(x.r + dr, e, x.v + dv, x.w + dw)

    def local(self, x: State, y: State) -> Array:
        turn = jax.vmap(lambda a, b: vector_of_quaternion(product(a, conjugate(b))))(y.e, x.e)
        return jnp.concatenate([(y.r - x.r), turn, y.v - x.v, y.w - x.w]).reshape(-1)

    def positions(self, model: TreeModel, x: State) -> Array:  # type: ignore[override]
        """Joint coordinates read off the bodies' relative poses; angles within ±π."""
        return _coordinates(model, _joints(model, _bodies(model, x)))

    def velocities(  # type: ignore[override]
        self, model: TreeModel, x: State, u: Array, driven: Array
    ) -> Array:
        at = _bodies(model, x)
        return _rates(model, at, _joints(model, at)) @ _stacked(x)

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
        mass, impulse, rows = self._forward(x0, u, t, h, model)
        new = _stacked(x1)
        sigma, target = self._regularised(rows, _stacked(x0), h)
        moved = self.retract(x0, jnp.concatenate([h * new, jnp.zeros_like(new)]))
        kinematic = self.local(moved, x1)[: new.shape[0]]
        closing = rows.G @ new + sigma * z - target
        return jnp.concatenate([mass @ new - rows.G.T @ z - impulse, kinematic, closing])

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
        mass, impulse, rows = self._forward(x0, u, t, h, model)
        sigma, target = self._regularised(rows, _stacked(x0), h)
        half = mass.shape[0]
        kkt = jnp.block([[mass, -rows.G.T], [rows.G, jnp.diag(sigma)]])
        solved = jnp.linalg.solve(kkt, jnp.concatenate([impulse, target]))
        new, lam = solved[:half], solved[half:]
        moved = self.retract(x0, jnp.concatenate([h * new, jnp.zeros(half)]))
        v, w = new.reshape(2, -1, 3)
        fine = jnp.all(jnp.isfinite(solved))
        outcome = jnp.where(fine, int(Outcome.SOLVED), int(Outcome.SINGULAR))
        state = State(moved.r, moved.e / jnp.linalg.norm(moved.e, axis=-1, keepdims=True), v, w)
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
        """In closed form by the new state and by z, which enter simply; automatic by all else."""
        x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (0, 1))
        h, half = self.step_size(k), self.nx(model) // 2
        mass, _, rows = self._forward(x0, u, t, h, model)
        sigma, _ = self._regularised(rows, _stacked(x0), h)

        def kinematic(e0: Array, e1: Array, w: Array, turn: Array, dw: Array) -> Array:
            moved = product(quaternion_of_vector(h * (w + dw)), e0)
            return vector_of_quaternion(product(product(quaternion_of_vector(turn), e1), conjugate(moved)))

        still = jnp.zeros(3)
        by_turn, by_w = jax.vmap(
            lambda *a: jax.jacfwd(kinematic, argnums=(3, 4))(*a, still, still),
        )(x0.e, x1.e, x1.w)
        b = x0.e.shape[0]
        one, zero = jnp.eye(3 * b), jnp.zeros((3 * b, 3 * b))
        apart = jnp.eye(b)[:, None, :, None]
        turns, rates = ((apart * m[:, :, None, :]).reshape(3 * b, 3 * b) for m in (by_turn, by_w))
        empty = jnp.zeros((half, half))
        by_x1 = jnp.block(
            [
                [empty, mass],
                [jnp.block([[one, zero], [zero, turns]]), jnp.block([[-h * one, zero], [zero, rates]])],
                [jnp.zeros((z.shape[0], half)), rows.G],
            ]
        )
        by_z = jnp.concatenate([-rows.G.T, jnp.zeros((half, z.shape[0])), jnp.diag(sigma)])

        def from_old(d: Array, u: Array, m: Any) -> Array:
            old = jax.tree.map(lambda a, b: jnp.stack([a, b]), self.retract(x0, d), x1)
            return self.residual(old, z, u, t, k, m)

        r, (by_x0, by_u), by_theta = columns(from_old, (jnp.zeros(2 * half), u), model, tangent)
        return Blocks(r, jnp.stack([by_x0, by_x1]), by_z, by_u, by_theta)

    def reactions(self, z: Array, h: Array, model: TreeModel) -> Array:  # type: ignore[override]
        """Those of loops, couplings and drives; λ acts by +Gᵀ."""
        return z[self.nz(model) - model.nc :] / h

    def _regularised(self, rows: Rows, v: Array, h: Array) -> tuple[Array, Array]:
        """Σ and the right-hand side of each row. A driven row is to arrive within the step."""
        tau = 2.0 * h if self.relaxation_time is None else self.relaxation_time
        gamma = 1.0 / (1.0 + 4.0 * tau / h)
        linear = self.compliance
        turning = linear if self.rotational_compliance is None else self.rotational_compliance
        sigma = 4.0 / h**2 * gamma * jnp.where(rows.turning > 0, turning, linear)
        target = jnp.where(rows.driven > 0, -rows.g / h, -4.0 / h * gamma * rows.g + gamma * (rows.G @ v))
        return sigma, target

    def _forward(self, x: State, u: Array, t: Array, h: Array, model: TreeModel) -> tuple[Array, Array, Rows]:
        """The mass matrix, M v + h f, and the constraint rows at a state."""
        at = _bodies(model, x)
        joints = _joints(model, at)
        rates, q, v = _rates(model, at, joints), _coordinates(model, joints), _stacked(x)
        mass = _mass_matrix(at) + (rates.T * model.armature) @ rates
        turned = jnp.einsum("bij,bj->bi", at.inertia, x.w)
        body = jnp.stack([at.mass[:, None] * model.gravity, -cross(x.w, turned)])
        body += _frame_forces(model, x, at, u)
        joint = elements.joint_force(model, q, rates @ v, u, t)
        joint -= elements.joint_potential_gradient(model, q) + model.armature * self._bend(model, x)
        force = body.reshape(-1) + rates.T @ joint
        return mass, mass @ v + h * force, _constraints(model, at, q, rates, u)

    def _bend(self, model: TreeModel, x: State) -> Array:
        """(d/dt ∂q/∂x) [v ; ω]: what of the joints' accelerations comes from velocity alone."""
        v = _stacked(x)
        still = jnp.zeros_like(v)

        def rate(s: Array) -> Array:
            moved = self.retract(x, jnp.concatenate([s * v, still]))
            at = _bodies(model, moved)
            return _rates(model, at, _joints(model, at)) @ v

        return jax.jvp(rate, (jnp.asarray(0.0),), (jnp.asarray(1.0),))[1]


jax.tree_util.register_dataclass(
    Spook,
    data_fields=["dt", "compliance", "rotational_compliance", "relaxation_time"],
    meta_fields=[],
)


class Bodies(NamedTuple):
    """Every body's pose and inertia at a state; the world comes last in R, p and r."""

    R: Array
    p: Array
    """origins of the bodies' frames"""
    r: Array
    """centres of mass"""
    mass: Array
    inertia: Array
    """(b, 3, 3) about the centre of mass, world axes"""


def _bodies(model: TreeModel, x: State) -> Bodies:
    mass, com, inertia = _inertias(model)
    R = jax.vmap(rotation_of_quaternion)(x.e)
    p = x.r - jnp.einsum("bij,bj->bi", R, com)
    world = jnp.zeros((1, 3))
    return Bodies(
        jnp.concatenate([R, jnp.eye(3)[None]]),
        jnp.concatenate([p, world]),
        jnp.concatenate([x.r, world]),
        mass,
        R @ inertia @ jnp.swapaxes(R, 1, 2),
    )


class Joints(NamedTuple):
    """What joint coordinates are read from."""

    axes: Array
    """(b, 3, 3) world axes (columns) along which slides and angles are read, fixed to the parent"""
    slides: Array
    angles: Array
    """(b, 3) Cardan angles"""


def _joints(model: TreeModel, at: Bodies) -> Joints:
    """Slides and Cardan angles of every body against its parent, along the joint's axes."""
    own = model.maximal
    R, p = at.R, at.p
    R_parent, p_parent = take(R, own.parent), take(p, own.parent)
    axes = R_parent @ own.place[:, :3, :3] @ jnp.swapaxes(own.basis, 1, 2)
    gap = p[:-1] - p_parent - jnp.einsum("bij,bj->bi", R_parent, own.place[:, :3, 3])
    T = jnp.einsum("bji,bjm,blm->bil", axes, R[:-1], own.basis)
    angles = [
        jnp.arctan2(-T[:, 1, 2], T[:, 2, 2]),
        jnp.arctan2(T[:, 0, 2], jnp.hypot(T[:, 0, 0], T[:, 0, 1])),
        jnp.arctan2(-T[:, 0, 1], T[:, 0, 0]),
    ]
    return Joints(axes, jnp.einsum("bji,bj->bi", axes, gap), jnp.stack(angles, -1))


def _coordinates(model: TreeModel, joints: Joints) -> Array:
    own = model.maximal
    return own.sign * jnp.concatenate([joints.slides, joints.angles], -1)[own.owner, own.component]


def _rates(model: TreeModel, at: Bodies, joints: Joints) -> Array:
    """∂q/∂x, (n, 6 b): rates of slides and Cardan angles by the bodies' velocities."""
    own = model.maximal
    count = at.mass.shape[0]
    (s, sin_b, _), (c, cos_b, _) = jnp.sin(joints.angles).T, jnp.cos(joints.angles).T
    zero, one = jnp.zeros_like(s), jnp.ones_like(s)
    tangent = sin_b / cos_b
    cardan = jnp.stack(
        [
            jnp.stack([one, tangent * s, -tangent * c], -1),
            jnp.stack([zero, c, s], -1),
            jnp.stack([zero, -s / cos_b, c / cos_b], -1),
        ],
        1,
    )
    rows = jnp.concatenate([jnp.broadcast_to(jnp.eye(3), cardan.shape), cardan], 1)
    direction = jnp.einsum("bij,bkj->bki", joints.axes, rows)[own.owner, own.component]
    slide = (own.component < 3)[:, None]
    child, parent = own.owner, take(own.parent, own.owner)
    on_child, on_parent = (jax.nn.one_hot(b, count)[:, :, None] for b in (child, parent))
    linear = (on_child - on_parent) * jnp.where(slide, direction, 0.0)[:, None]
    levers = [
        jnp.where(slide, cross(take(at.p, child) - take(at.r, b), direction), direction)
        for b in (child, parent)
    ]
    turning = on_child * levers[0][:, None] - on_parent * levers[1][:, None]
    n = direction.shape[0]
    both = jnp.concatenate([linear.reshape(n, -1), turning.reshape(n, -1)], -1)
    return own.sign[:, None] * both


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


def _mass_matrix(at: Bodies) -> Array:
    count = at.mass.shape[0]
    turning = jnp.eye(count)[:, None, :, None] * at.inertia[:, :, None, :]
    zero = jnp.zeros((3 * count, 3 * count))
    linear = jnp.diag(jnp.repeat(at.mass, 3))
    return jnp.block([[linear, zero], [zero, turning.reshape(3 * count, 3 * count)]])


def _frame_forces(model: TreeModel, x: State, at: Bodies, u: Array) -> Array:
    """(2, b, 3) forces and moments about the centres of mass of wrenches and line springs."""
    R, p, r, count = at.R, at.p, at.r, at.mass.shape[0]
    v, w = (jnp.concatenate([a, jnp.zeros((1, 3))]) for a in (x.v, x.w))
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
        ends = [_points(at, _on_bodies(model, a)) for a in (lines.start, lines.end)]
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


def _constraints(model: TreeModel, at: Bodies, q: Array, rates: Array, u: Array) -> Rows:
    """Joints, loops, couplings and drives."""
    own = model.maximal
    loops = (model.row_direction, model.row_to, model.row_start)
    joined = [
        Attached(jnp.concatenate([a.link, b.link]), jnp.concatenate([a.vector, b.vector]))
        for a, b in zip(
            (own.row_direction, own.row_to, own.row_start),
            (_on_bodies(model, a) for a in loops),
            strict=True,
        )
    ]
    g, G = _geometric(at, *joined)
    turning = (joined[1].link == joined[2].link).astype(g.dtype)
    closure, slope = joint_rows(model, q, u)
    on_joints = jnp.concatenate([model.coupling_index[:, 0], model.drive_index[:, 0]])
    is_driven = np.arange(closure.shape[0]) >= model.coupling.shape[0]
    return Rows(
        jnp.concatenate([g, closure]),
        jnp.concatenate([G, slope @ rates]),
        jnp.concatenate([turning, model.revolute[on_joints]]),
        jnp.concatenate([jnp.zeros_like(turning), is_driven.astype(float)]),
    )


def _on_bodies(model: TreeModel, attached: Attached) -> Attached:
    return Attached(model.maximal.body_of[attached.link], attached.vector)


def _points(at: Bodies, where: Attached) -> Array:
    turned = jnp.einsum("rij,rj->ri", take(at.R, where.link), where.vector)
    return turned + take(at.p, where.link)


def _geometric(at: Bodies, direction: Attached, to: Attached, start: Attached) -> tuple[Array, Array]:
    """n·(x_b − x_a) and its Jacobian by the bodies' velocities."""
    count = at.mass.shape[0]
    n = jnp.einsum("rij,rj->ri", take(at.R, direction.link), direction.vector)
    end, begin = _points(at, to), _points(at, start)
    gap = end - begin
    on = [jax.nn.one_hot(a.link, count)[:, :, None] for a in (direction, to, start)]
    linear = (on[1] - on[2]) * n[:, None]
    turning = (
        on[0] * cross(n, gap)[:, None]
        + on[1] * cross(end - take(at.r, to.link), n)[:, None]
        - on[2] * cross(begin - take(at.r, start.link), n)[:, None]
    )
    rows = n.shape[0]
    G = jnp.concatenate([linear.reshape(rows, -1), turning.reshape(rows, -1)], -1)
    return jnp.sum(n * gap, -1), G
