"""The regressor of a mechanism: against derivatives of its balance of forces and MuJoCo's inverse dynamics."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mechid import Mechanism, MechidError, Parameters, read_mechanism
from mechid.compile import jit
from mechid.estimate.linear_form import MechanismForm

RNG = np.random.default_rng(5)


def solid(rng):
    points = rng.normal(size=(6, 3))
    second = 0.02 * points.T @ points
    return {
        "mass": rng.uniform(0.5, 2),
        "com": rng.uniform(-0.3, 0.3, 3),
        "inertia": np.trace(second) * np.eye(3) - second,
    }


def own_force(q, v, t, p):
    return jnp.stack([-p[0] * v[0] + jnp.cos(t) * p[2], -p[1] * jnp.tanh(q[0] + v[1])])


def machine() -> Mechanism:
    """Slides, turns, a compound joint, fixed bodies and every element whose force is known, tied by a cam."""
    rng = np.random.default_rng(3)
    m = Mechanism("machine", gravity=(0.6, -1.0, -9.7))
    for name in ("cart", "arm", "forearm", "tool", "cam"):
        m = m.body(name, **solid(rng))

    def place():
        return {"origin": rng.uniform(-0.4, 0.4, 3), "rotation": rng.uniform(-1, 1, 3)}

    return (
        m.prismatic("x", "world", "cart", axis=(0.8, 0.6, 0), **place())
        .universal("shoulder", "cart", "arm", axes="zy", coordinates=("theta", "psi"), **place())
        .revolute("elbow", "arm", "forearm", axis=(0.6, 0, 0.8), **place())
        .fixed("weld", "forearm", "tool", **place())
        .revolute("wheel", "arm", "cam", axis="x", **place())
        .coupling("gear", "wheel", "psi", offset=0.1, ratio=-2.0, higher=(0.5,))
        .spring("x", stiffness=30.0, cubic=8.0, rest=0.2)
        .spring("psi", stiffness=3.0, rest=0.4)
        .damper("x", damping=2.0, cubic=0.7)
        .damper("wheel", damping=0.4)
        .friction("theta", coulomb=0.8, stribeck=0.5, stribeck_velocity=0.3, width=0.05)
        .motor("elbow", gain=0.4, gear_ratio=30.0, rotor_inertia=2e-3)
        .torque("x")
        .armature("theta", inertia=0.3)
        .offset("elbow", force=0.7)
        .element("web", ["theta", "elbow"], force=own_force, parameters={"a": 1.0, "b": 2.0, "c": 0.3})
    )


FREE = [
    *(f"{b}.{n}" for b in ("cart", "arm", "tool") for n in ("mass", "first_moment", "origin_inertia")),
    "cam.inertia.xx", "forearm.inertia.yy", "forearm.mass", "x.stiffness", "x.cubic_stiffness", "psi.rest",
    "x.damping", "x.cubic_damping", "wheel.damping", "theta.coulomb", "theta.stribeck", "elbow.motor.gain",
    "elbow.motor.rotor_inertia", "theta.armature", "elbow.offset", "web.a", "web.b", "web.c",
]  # fmt: skip


def freed(mechanism, names):
    free = Parameters(mechanism)
    for name in names:
        free = free.free(name)
    return free


def samples_of(form, count, rng=RNG):
    x = rng.uniform(-1.2, 1.2, (count, len(form.channels)))
    k = len(form.independent)
    x[:, 1 + k : 1 + 2 * k] *= 2.0
    x[:, 1 + 2 * k : 1 + 3 * k] *= 3.0
    return x


def projected_balance(form, x, theta):
    """The balance of forces of the model itself, coupled coordinates eliminated by its own constraint's slope."""
    model = form.free.lowering.model(form.numbers.values(theta))
    motion = form._motion(x)
    names = form.mechanism.coordinate_names
    place = [names.index(c) for c in form.independent]
    rest = [i for i in range(len(names)) if i not in place]
    given = motion.q.T, motion.v.T, motion.a.T, motion.u.T, x[:, 0]
    f, h, slope, turn = (np.asarray(y) for y in asked(model, *given))
    np.testing.assert_allclose(h, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", slope, given[1]), 0.0, atol=1e-12)
    bent = np.einsum("nij,nj->ni", slope, given[2]) + np.einsum("nij,nj->ni", turn, given[1])
    np.testing.assert_allclose(bent, 0.0, atol=1e-11)
    lever = np.zeros((len(x), len(names), len(place)))
    lever[:, place] = np.eye(len(place))
    lever[:, rest] = -np.linalg.solve(slope[:, :, rest], slope[:, :, place])
    return np.einsum("nij,ni->nj", lever, f)


@partial(jit, once=True)
def asked(model, q, v, a, u, t):
    """Balance, constraint, its slope, and how that turns."""

    def one(q, v, a, u, t):
        h, slope = model.constraint(q, u)
        turn = jax.jvp(lambda y: model.constraint(y, u)[1], (q,), (v,))[1]
        return model.force_balance(q, v, a, u, t), h, slope, turn

    return jax.vmap(one)(q, v, a, u, t)


def test_rows_are_the_balance_of_forces():
    """φ θ − y at random numbers equals the model's own balance, couplings projected out."""
    form = MechanismForm(freed(machine(), FREE))
    assert form.closed
    x = samples_of(form, 7)
    phi, y = form.rows(x)
    assert phi.shape == (7, 4, len(form.names))
    for _ in range(2):
        theta = form.numbers.start * RNG.uniform(0.5, 1.5, len(form.names)) + 0.1 * RNG.normal(
            size=len(form.names)
        )
        want = projected_balance(form, x, theta)
        np.testing.assert_allclose(phi @ theta - y, want, rtol=1e-10, atol=1e-9)


def test_columns_are_the_slopes_of_the_balance():
    """Against JAX's derivative by the vector of values."""
    form = MechanismForm(freed(machine(), FREE))
    x = samples_of(form, 3)
    phi, _ = form.rows(x)
    motion = form._motion(x)
    lowering = form.free.lowering

    def balance(theta, q, v, a, u, t, lever):
        values = form.numbers.still + form.numbers.slopes @ theta
        return lever.T @ lowering.model(values).force_balance(q, v, a, u, t)

    slopes = jit(lambda *given: jax.jacfwd(balance)(jnp.asarray(form.numbers.start), *given), once=True)
    for i in range(3):
        lever = motion.lever[:, :, i if motion.lever.shape[2] > 1 else 0]
        want = slopes(motion.q[:, i], motion.v[:, i], motion.a[:, i], motion.u[:, i], x[i, 0], lever)
        np.testing.assert_allclose(phi[i], want, rtol=1e-10, atol=1e-10)


def test_line_springs_wrenches_and_symbols_go_by_derivatives():
    """What has no closed form here gives the same rows as the model's balance."""
    m = (
        machine()
        .line_spring("cord", "world", "tool", stiffness=20.0, rest=0.3, damping=3.0)
        .force("push", "arm")
    )
    form = MechanismForm(freed(m, [*FREE[:9], "cord.stiffness", "cord.damping", "x.damping"]))
    assert not form.closed
    x = samples_of(form, 4)
    phi, y = form.rows(x)
    theta = form.numbers.start * 1.3
    np.testing.assert_allclose(phi @ theta - y, projected_balance(form, x, theta), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    "file", ["models/kuka_iiwa_14/iiwa14.xml", "models/universal_robots_ur10e/ur10e.xml"]
)
def test_arms_give_mujocos_inverse_dynamics(reference, file):
    """τ of mj_inverse, from all inertial numbers of the file, friction and actuators left out."""
    path = reference / "data" / file
    mechanism = read_mechanism(path)
    spec = mujoco.MjSpec.from_file(str(path))
    spec.compiler.inertiafromgeom = 0
    for kind in ("geoms", "meshes", "materials", "textures", "sensors"):
        for element in list(getattr(spec, kind)):
            spec.delete(element)
    model = spec.compile()
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS | mujoco.mjtDisableBit.mjDSBL_ACTUATION
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data = mujoco.MjData(model)
    free = Parameters(mechanism)
    for body in mechanism.bodies:
        for name in ("mass", "first_moment", "origin_inertia"):
            free = free.free(f"{body.name}.{name}")
    form = MechanismForm(free)
    x = samples_of(form, 20)
    x[:, 1 + 3 * model.nq :] = 0.0
    phi, y = form.rows(x)
    k = model.nq
    got = phi @ form.numbers.start - y
    friction = {
        e.coordinate: e for e in mechanism.elements if type(e).__name__ in ("Friction", "DryFriction")
    }
    for i, row in enumerate(x):
        data.qpos[:], data.qvel[:], data.qacc[:] = (
            row[1 : 1 + k],
            row[1 + k : 1 + 2 * k],
            row[1 + 2 * k : 1 + 3 * k],
        )
        mujoco.mj_inverse(model, data)
        dry = np.zeros(k)
        for j, c in enumerate(mechanism.coordinate_names):
            if c in friction:
                dry[j] = friction[c].coulomb * np.tanh(
                    row[1 + k + j] / getattr(friction[c], "friction_width", 1e-300)
                )
        np.testing.assert_allclose(got[i] - dry, data.qfrc_inverse, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["arm.com", "arm.mass"], "first_moment"),
        (["theta.friction_width"], "'theta.friction_width'"),
        (["x.rest"], "'x.rest'"),
        (["psi.rest", "psi.stiffness"], "'psi.rest'"),
        (["elbow.motor.gear_ratio"], "gear_ratio"),
        (["elbow.origin.x", "arm.mass"], "'elbow.origin.x'"),
        (["gravity.z"], "'gravity.z'"),
    ],
)
def test_what_is_not_linear_is_refused_by_name(names, told):
    with pytest.raises(MechidError, match="simulation_error or joint") as caught:
        MechanismForm(freed(machine(), names))
    assert told in str(caught.value)


def test_a_users_element_must_be_linear_in_what_is_free():
    m = machine().element(
        "odd", ["x"], force=lambda q, v, t, p: -v * p[0] ** 2 - p[1] * q, parameters={"b": 2.0, "k": 1.0}
    )
    form = MechanismForm(freed(m, ["odd.b"]))
    with pytest.raises(MechidError, match="element 'odd' is not linear"):
        form.rows(samples_of(form, 3))
    form = MechanismForm(freed(m, ["odd.k", "web.c"]))
    x = samples_of(form, 3)
    phi, y = form.rows(x)
    np.testing.assert_allclose(
        phi @ form.numbers.start - y, projected_balance(form, x, form.numbers.start), rtol=1e-10, atol=1e-9
    )


def test_widths_of_friction_may_be_searched_for_from_outside():
    free = freed(machine(), ["theta.coulomb", "theta.friction_width", "theta.stribeck_velocity"])
    form = MechanismForm(free, nonlinear=("theta.friction_width", "theta.stribeck_velocity"))
    assert form.names == ("theta.coulomb",)
    x = samples_of(form, 5)
    v = x[:, form.channels.index("theta rate")]
    phi, _ = form.rows(x, np.array([0.7, 0.4]))
    np.testing.assert_allclose(phi[:, form.outputs.index("theta"), 0], np.tanh(v / 0.7), rtol=1e-12)
    with pytest.raises(MechidError, match="shape"):
        MechanismForm(free, nonlinear=("theta.coulomb",))


def test_contacts_are_refused():
    m = Mechanism().body("rod", mass=1.0).revolute("hinge", "world", "rod").stops("hinge", lower=-1.0)
    with pytest.raises(MechidError, match="pushes only where"):
        MechanismForm(freed(m, ["rod.mass"]))
