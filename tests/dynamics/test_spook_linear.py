"""The closed-form derivatives of SPOOK against automatic differentiation of its residual, off the motion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid import Mechanism, Softness, Spook
from mechid.compile import jit
from mechid.dynamics.lowering import Lowering
from mechid.dynamics.prepare import prepare_tangent
from mechid.dynamics.stepper import RowKind, Stepper, moving
from mechid.studies import mechanisms


def _rich_furuta() -> Mechanism:
    """With a motor's rotor, an armature, a spring and friction."""
    return (
        mechanisms.furuta()
        .motor("swing", gain=0.7, gear_ratio=3.0, rotor_inertia=0.01)
        .armature("turn", inertia=0.05)
        .spring("swing", stiffness=2.0)
        .friction("swing", coulomb=0.1, stribeck=0.05, width=0.3)
    )


def _wagon() -> Mechanism:
    """A turning wheel whose slide carries a ball joint and a universal one; armatures, couplings, springs."""
    solid = {"mass": 1.3, "com": (0.1, -0.2, 0.3), "inertia": (0.2, 0.3, 0.25, 0.01, -0.02, 0.03)}
    m = (
        Mechanism("wagon")
        .body("wheel", **solid)
        .revolute("spin", "world", "wheel", axis="z", origin=(0.1, 0.2, 0.3))
        .body("sled", **solid)
        .prismatic("slide", "wheel", "sled", axis="x", origin=(0.3, 0.0, 0.1))
        .body("ball", **solid)
        .spherical("socket", "sled", "ball", axes="yzx", coordinates=("b1", "b2", "b3"), origin=(0, 0.4, 0.1))
        .body("rod", **solid)
        .universal("cross", "sled", "rod", axes="xz", coordinates=("c1", "c2"), origin=(0.2, -0.4, 0.1))
        .frame("tip", "rod", origin=(0.0, 0.5, 0.1))
        .frame("hook", "ball", origin=(0.3, 0.0, 0.1))
        .force("push", "tip", axes="body", moment=True)
        .line_spring("rope", "tip", "hook", stiffness=3.0, cubic=1.0, rest=0.2, damping=0.4)
        .coupling("gear", "c2", "b1", ratio=0.5, higher=(0.3, 0.2))
        .drive("c1")
        .element("pair", ("slide", "b2"), force=lambda q, v, t, p: -p[0] * q[::-1] * v, parameters={"k": 0.3})
    )
    for name in ("spin", "slide", "b1", "b2", "b3", "c2"):
        m = m.armature(name, inertia=0.4).damper(name, damping=0.3, cubic=0.1)
    return m


def _floating() -> Mechanism:
    m = Mechanism("floating").body("rock", mass=2.0, com=(0.1, 0.2, -0.1), inertia=(0.3, 0.2, 0.1))
    m = m.floating("free", "world", "rock", origin=(0.1, 0.0, 0.4))
    for name in m.coordinate_names:
        m = m.armature(name, inertia=0.3)
    return m


CASES = {
    "pendulum": mechanisms.pendulum,
    "cart_pendulum": mechanisms.cart_pendulum,
    "furuta": mechanisms.furuta,
    "rich_furuta": _rich_furuta,
    "four_bar": mechanisms.four_bar,
    "wagon": _wagon,
    "floating": _floating,
    "loop6": lambda: mechanisms.loop6(damping=0.1),
}


def setting(mechanism: Mechanism, stepper: Spook, rng: np.random.Generator) -> tuple:
    """A model that all its numbers can move, two states that no step joins, multipliers and inputs."""
    lowering = Lowering(mechanism)
    model, top = lowering.model(), lowering.topology
    slopes = rng.normal(size=(len(lowering.values), 3))
    for name, offset, rows, columns in top.blocks:
        if name.endswith("rotation"):
            slopes[offset : offset + rows * columns] = 0.0
    tangent = moving(prepare_tangent(top, np.asarray(lowering.values), slopes))
    q, v, u = 0.4 * rng.normal(size=model.nq), rng.normal(size=model.nq), rng.normal(size=model.nu)
    x0 = stepper.initial(model, jnp.asarray(q), jnp.asarray(v), u, 0.0)
    noise = 1e-2 * rng.normal(size=(2, stepper.nx(model)))
    xs = jax.vmap(stepper.retract, (None, 0))(x0, noise)
    return xs, rng.normal(size=stepper.nz(model)), u, model, tangent


LONG = ("wagon", "loop6", "pendulum", "cart_pendulum", "floating", "furuta")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in CASES])
def test_linearize_is_what_automatic_differentiation_gives(name):
    soft, mechanism = (
        {"closure": Softness(1e-4, relaxation_time=0.1)} if name == "four_bar" else {},
        CASES[name](),
    )
    stepper = Spook(0.01, 1e-6, rotational_compliance=1e-5, relaxation_time=0.03, constraints=soft).on(
        mechanism
    )
    xs, z, u, model, tangent = setting(mechanism, stepper, np.random.default_rng(1))

    def by(kind: type[Stepper]):
        return jit(lambda xs, z, u, m: kind.linearize(stepper, xs, z, u, 0.05, 3, m, tangent), once=True)

    got, wanted = (by(kind)(xs, z, u, model) for kind in (Spook, Stepper))
    for field, a, b in zip(got._fields, got, wanted, strict=True):
        assert a.shape == b.shape
        scale = np.max(np.abs(b), initial=1e-12)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * scale, err_msg=field)
    # solved for velocities and impulses, poses following, as the whole matrix is
    system = jit(lambda xs, z, u, m: stepper.system(xs, z, u, 0.05, 3, m, tangent), once=True)(
        xs, z, u, model
    )
    found = np.concatenate(stepper.completed(xs, 3, model, np.linalg.solve(*map(np.asarray, system))))
    dynamic = [kind is RowKind.DYNAMIC for kind in stepper.rows(model)]
    errors = np.eye(len(dynamic))[:, dynamic]
    known = np.concatenate([errors, -wanted.x[0], -wanted.theta, -wanted.r[:, None]], 1)
    expected = np.linalg.solve(np.concatenate([wanted.x[1], wanted.z], 1), known)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
