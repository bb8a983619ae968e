"""`Model`: what a stepper asks of a mechanism; `TreeModel`: a mechanism lowered to arrays that answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from mechid.dynamics import elements, loops, tree
from mechid.dynamics.contacts import Contacts, Stops
from mechid.dynamics.dry import DryRows
from mechid.dynamics.elements import ElementArrays
from mechid.dynamics.loops import Attached
from mechid.dynamics.tree import Array


class Terms(NamedTuple):
    """First derivatives of the Lagrangian and the generalized force."""

    q: Array
    """∂L/∂q"""
    v: Array
    """∂L/∂v"""
    force: Array


class Hessians(NamedTuple):
    """Second derivatives of the Lagrangian and first ones of the force."""

    qq: Array
    vq: Array
    """vq[i, j] = ∂²L/∂v_i∂q_j"""
    vv: Array
    """the mass matrix"""
    force_q: Array
    force_v: Array
    force_u: Array


class Maximal(NamedTuple):
    """The mechanism as bodies of six degrees of freedom each, one for every joint that moves."""

    link: Array
    """(b,) coordinate whose frame is the body's"""
    parent: Array
    """(b,) parent body; b is the world"""
    place: Array
    """(b, 4, 4) the joint's frame in the parent's"""
    body_of: Array
    """(n + 1,) body that a coordinate's frame belongs to"""
    basis: Array
    """(b, 3, 3) axes along which the joint's angles and slides are read"""
    owner: Array
    component: Array
    sign: Array
    """(n,) each coordinate: its body, 0–2 slide or 3–5 angle, sense"""
    row_direction: Attached
    row_to: Attached
    row_start: Attached
    """what the joints lock; links are bodies here"""


class Model(Protocol):
    """Arrays only: no names, no strings. Sizes are static, everything else is traced."""

    @property
    def nq(self) -> int: ...
    @property
    def nc(self) -> int: ...
    @property
    def nr(self) -> int:
        """constraints on rates that are none on coordinates"""
        ...

    @property
    def nu(self) -> int: ...
    @property
    def driven(self) -> Array:
        """indices of driven coordinates; their rows come last in the constraint"""
        ...

    def places(self, *configurations: Array) -> list[Any]:
        """What evaluations at these configurations share: they may be given it as `at`."""
        ...

    def terms(self, q: Array, v: Array, u: Array, t: Array) -> Terms: ...
    def terms_and_hessians(
        self, q: Array, v: Array, u: Array, t: Array, at: Any = None
    ) -> tuple[Terms, Callable[[], Hessians]]:
        """The terms now, the Hessians when they are asked for; the two share their work."""
        ...

    def constraint(self, q: Array, u: Array, at: Any = None) -> tuple[Array, Array]: ...
    def constraint_input_slope(self) -> Array:
        """∂h/∂u, a constant"""
        ...

    def constraint_hessian(self, q: Array, weights: Array, at: Any = None) -> Array: ...
    def rolling(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        """c(q, v, t), linear in v, that must vanish, and ∂c/∂v"""
        ...

    @property
    def dry(self) -> DryRows:
        """friction that sticks"""
        ...

    @property
    def contacts(self) -> Contacts: ...
    @property
    def stops(self) -> Stops: ...

    def force_balance(self, q: Array, v: Array, a: Array, u: Array, t: Array) -> Array: ...
    def mass_matrix(self, q: Array) -> Array: ...
    def energy(self, q: Array, v: Array) -> tuple[Array, Array]: ...
    def frame_poses(self, q: Array) -> Array: ...
    def frame_twists(self, q: Array, v: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class TreeModel(ElementArrays):
    """A mechanism as arrays: those of the tree, of its loops and of its elements."""

    maximal: Maximal

    @property
    def nq(self) -> int:
        return self.axis.shape[-2]

    @property
    def nc(self) -> int:
        rows = (self.row_direction.link, self.coupling_index, self.drive_index)
        return sum(r.shape[0] for r in rows)

    @property
    def nr(self) -> int:
        return 0

    @property
    def nu(self) -> int:
        return self.motor.shape[-1]

    @property
    def driven(self) -> Array:
        return self.drive_index[:, 0]

    def terms(self, q: Array, v: Array, u: Array, t: Array) -> Terms:
        return self.terms_and_hessians(q, v, u, t)[0]

    def places(self, *configurations: Array) -> list[tree.Kinematics]:
        return tree.several_kinematics(self, *configurations)

    def terms_and_hessians(
        self, q: Array, v: Array, u: Array, t: Array, at: tree.Kinematics | None = None
    ) -> tuple[Terms, Callable[[], Hessians]]:
        now = tree.motion(self, at or tree.kinematics(self, q), v)
        first = tree.lagrangian_terms(self, now)
        terms = Terms(
            first.q - elements.potential_gradient(self, now.at, q),
            first.v + elements.weighed(self, self.armature, v),
            elements.force(self, now.at, q, v, u, t),
        )

        def hessians() -> Hessians:
            second = tree.lagrangian_hessian(self, now)
            by = elements.force_derivatives(self, now.at, q, v, u, t)
            return Hessians(
                second.qq - elements.potential_hessian(self, now.at, q),
                second.vq,
                second.vv + elements.weighed(self, self.armature, jnp.eye(self.nq)),
                by.q,
                by.v,
                by.u,
            )

        return terms, hessians

    def constraint(self, q: Array, u: Array, at: tree.Kinematics | None = None) -> tuple[Array, Array]:
        """h(q, u) and ∂h/∂q."""
        return loops.constraint(self, at or tree.kinematics(self, q), q, u)

    def constraint_input_slope(self) -> Array:
        return loops.input_slope(self, self.nu)

    def constraint_hessian(self, q: Array, weights: Array, at: tree.Kinematics | None = None) -> Array:
        """Σ weights·∂²h/∂q²."""
        return loops.constraint_hessian(self, at or tree.kinematics(self, q), q, weights)

    def rolling(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        return jnp.zeros(0), jnp.zeros((0, self.nq))

    def force_balance(self, q: Array, v: Array, a: Array, u: Array, t: Array) -> Array:
        """M a + bias − every force: zero along an unconstrained motion."""
        at = tree.kinematics(self, q)
        return (
            tree.inverse_dynamics(self, q, v, a)
            + elements.weighed(self, self.armature, a)
            + elements.potential_gradient(self, at, q)
            - elements.force(self, at, q, v, u, t)
        )

    def mass_matrix(self, q: Array) -> Array:
        at = tree.kinematics(self, q)

        def momentum(v: Array) -> Array:
            return tree.lagrangian_terms(self, tree.motion(self, at, v)).v

        one = jnp.eye(self.nq)
        return jax.vmap(momentum)(one) + elements.weighed(self, self.armature, one)

    def energy(self, q: Array, v: Array) -> tuple[Array, Array]:
        """Kinetic and potential energy, J."""
        now = tree.motion(self, tree.kinematics(self, q), v)
        kinetic = tree.kinetic_energy(now) + 0.5 * v @ elements.weighed(self, self.armature, v)
        potential = tree.gravity_energy(self, now) + elements.potential_energy(self, now.at, q)
        return kinetic, potential

    def frame_poses(self, q: Array) -> Array:
        """(f, 4, 4) world poses of the world, every body and every named frame."""
        return tree.kinematics(self, q).pose[self.frame_link] @ self.frame_pose

    def frame_twists(self, q: Array, v: Array) -> Array:
        """(f, 6) angular velocity and velocity of the frame's origin, in world axes."""
        at = tree.kinematics(self, q)
        twist = (self.ancestry @ (at.twist_axes * v[:, None]))[self.frame_link]
        x = (at.pose[self.frame_link] @ self.frame_pose)[:, :3, 3]
        return jnp.concatenate([twist[:, :3], twist[:, 3:] + tree.cross(twist[:, :3], x)], -1)


_META = ("functions",)
jax.tree_util.register_dataclass(
    TreeModel,
    data_fields=[f.name for f in dataclasses.fields(TreeModel) if f.name not in _META],
    meta_fields=list(_META),
)


# Parameters enter through the model's float leaves.


def float_leaves(model: Any) -> list[Array]:
    """The leaves of a model that numbers can move."""
    return [x for x in jax.tree.leaves(model) if x.dtype.kind in "fc"]


def with_float_leaves(model: Any, floats: list[Array]) -> Any:
    leaves, structure = jax.tree.flatten(model)
    rest = iter(floats)
    new = [next(rest) if x.dtype.kind in "fc" else x for x in leaves]
    return jax.tree.unflatten(structure, new)


FORCES = (
    "gravity",
    "potential",
    "damping",
    "motor",
    "friction",
    "gear_friction",
    "load_friction",
    "piecewise",
    "periodic",
    "dry",
    "line_springs",
    "wrenches",
    "customs",
)
"""fields whose numbers move forces only: neither where bodies are nor how heavy they are"""


def moves_only_forces(model: Any, tangent: list[Any]) -> bool:
    """Whether the parameters of a tangent leave the configuration, its closures and its momenta alone."""
    paths = [
        path
        for path, x in jax.tree_util.tree_flatten_with_path(model)[0]
        if jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    moved = [path for path, slope in zip(paths, tangent, strict=True) if slope is not None]
    return isinstance(model, TreeModel) and all(getattr(path[0], "name", "") in FORCES for path in moved)
