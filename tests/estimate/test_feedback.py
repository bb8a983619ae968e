"""The stabilising filter: gains of a regulator, and what they do along a measured motion."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from estimation_cases import freed, log_with, problem_of

from mechid import MechidError, Variational, simulate
from mechid.dynamics.feedback import feedback
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import LQR, Experiment, Measured, Start, Tracked
from mechid.estimate.prepare import prepared
from mechid.estimate.tracking import riccati, with_gains, without_gains
from mechid.studies import mechanisms

DT = 0.02
CART = mechanisms.cart_pendulum(damping=0.1)
(PUSH,) = CART.input_names
STEPPER = Variational(DT)


def converged(A, B, Q, R, sweeps=2000):
    P = Q
    for _ in range(sweeps):
        K, P = riccati(A, B, Q, R, P)
    return K, P


@pytest.mark.parametrize("seed", range(5))
def test_a_converged_sweep_solves_the_riccati_equation(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 6)), int(rng.integers(1, 3))
    A, B = 0.6 * rng.normal(size=(n, n)), rng.normal(size=(n, m))
    root = rng.normal(size=(n, n))
    Q, R = root @ root.T + np.eye(n), np.diag(rng.uniform(0.1, 2.0, m))
    K, P = converged(A, B, Q, R)
    want = scipy.linalg.solve_discrete_are(A, B, Q, R)
    assert pytest.approx(want, rel=1e-9, abs=1e-9) == P
    assert pytest.approx(np.linalg.solve(R + B.T @ want @ B, B.T @ want @ A), rel=1e-9, abs=1e-9) == K


def at_rest(steps):
    """A log in which nothing moves, fed back on the cart."""
    t = DT * np.arange(steps + 1)
    log = log_with("still", x=(t, 0 * t), f=(t, 0 * t))
    return Experiment(
        log,
        [Measured(joint_position(CART, "slide"), "x", std=0.01)],
        inputs={PUSH: "f"},
        feedback=Tracked({"slide": "x"}, LQR(4.0, 0.01)),
    )


def test_gains_along_a_motion_at_rest():
    """Far from the end they are those of the algebraic Riccati equation; matrices by differences of one step."""
    h = 1e-4

    def step(q, v, u):
        run = simulate(CART, STEPPER, 1, q=q, v=v, inputs=[u])
        return np.concatenate([run.q[1], run.v[1]])

    x = h * np.eye(4)
    A = np.stack([(step(*np.split(d, 2), 0.0) - step(*np.split(-d, 2), 0.0)) / (2 * h) for d in x], -1)
    B = ((step([0, 0], [0, 0], h) - step([0, 0], [0, 0], -h)) / (2 * h))[:, None]
    Q, R = np.diag([4.0, 0.0, 0.0, 0.0]), np.array([[0.01]])
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    want = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)[:, 0]
    steps = 1200
    made = with_gains(prepared(STEPPER, at_rest(steps), freed(CART, "pole.mass")))
    gains = made.table.rows[:, 2]
    assert made.table.rows.shape == (steps, 3)
    assert gains[0] == pytest.approx(want[0], rel=1e-4)
    # nothing is left to regulate after the last step
    assert gains[-1] < 0.5 * gains[0]
    assert np.all(np.isfinite(gains))


def swing(mechanism, steps=200):
    """The cart pushed to and fro; the recording."""
    force = 1.5 * np.sin(3.0 * DT * np.arange(steps))
    run = simulate(mechanism, STEPPER, steps, q=[0.0, 0.6], inputs=force[:, None])
    return log_with("swing", x=(run.t, run.q[:, 0]), f=(run.t[:-1], force))


@pytest.fixture(scope="module")
def recorded():
    return swing(CART)


def followed(log, free, gain):
    experiment = Experiment(
        log,
        [Measured(joint_position(CART, "slide"), "x", std=0.01)],
        inputs={PUSH: "f"},
        start=Start(q={"hinge": 0.6}),
        feedback=Tracked({"slide": "x"}, gain),
    )
    problem = problem_of(STEPPER, experiment, free)
    (r,) = problem.evaluate(problem.start).runs[0].residuals
    return 0.01 * float(np.sqrt(np.mean(r**2)))


def test_feedback_keeps_a_wrong_mechanism_near_the_recording(recorded):
    """A pole of twice the mass: centimetres without feedback, a part of it with, the less the stiffer."""
    wrong = freed(CART, "pole.mass", start=0.6)
    open_loop = followed(recorded, wrong, [[0.0]])
    soft, stiff = (followed(recorded, wrong, LQR(1.0, weight)) for weight in (1e-3, 1e-5))
    assert open_loop > 0.02
    assert soft < 0.5 * open_loop
    assert stiff < 0.3 * soft


def test_feedback_does_nothing_where_the_mechanism_is_right(recorded):
    assert followed(recorded, freed(CART, "pole.mass"), LQR(1.0, 1e-3)) < 1e-8


def test_given_gains_act_as_written(recorded):
    """u = f − K (x − x_meas), by a controller in `simulate` on the same motion."""
    wrong = freed(CART, "pole.mass", start=0.6)
    law = feedback(
        CART,
        ["slide"],
        inputs=recorded["f"].values[:, None],
        reference=recorded["x"].values[:-1, None],
        gain=[[7.0]],
    )
    run = simulate(wrong.apply(wrong.theta0), STEPPER, 200, q=[0.0, 0.6], inputs=law)
    want = recorded["f"].values - 7.0 * (run.q[:-1, 0] - recorded["x"].values[:-1])
    assert run.inputs[:, 0] == pytest.approx(want, abs=1e-12)
    found = followed(recorded, wrong, [[7.0]])
    assert found == pytest.approx(
        float(np.sqrt(np.mean((run.q[:, 0] - recorded["x"].values) ** 2))), rel=1e-9
    )


def test_without_gains_nothing_is_fed_back():
    made = without_gains(prepared(STEPPER, at_rest(50), freed(CART, "pole.mass")))
    assert not made.table.rows.any()


def tracked(channels, gain=None):
    t = DT * np.arange(11)
    experiment = Experiment(
        log_with("run", x=(t, 0 * t)),
        [Measured(joint_position(CART, "slide"), "x", std=0.01)],
        feedback=Tracked(channels, LQR() if gain is None else gain),
    )
    return with_gains(prepared(STEPPER, experiment, freed(CART, "pole.mass")))


def without_inputs():
    m = mechanisms.pendulum()
    m = m.__class__("bare").body("rod", mass=1.0, com=(0, 0, -0.2), inertia=(0.01, 0.01, 0.001))
    m = m.revolute("hinge", "world", "rod", axis="y")
    t = DT * np.arange(11)
    experiment = Experiment(
        log_with("run", q=(t, 0 * t)),
        [Measured(joint_position(m, "hinge"), "q", std=0.01)],
        feedback=Tracked({"hinge": "q"}),
    )
    return with_gains(prepared(STEPPER, experiment, freed(m, "rod.mass")))


REFUSED = {
    "nothing tracked": (lambda: tracked({}), "The feedback of experiment 'run' tracks no coordinate."),
    "no such coordinate": (
        lambda: tracked({"slid": "x"}),
        "There is no coordinate named 'slid'. Did you mean slide? Valid: slide, hinge.",
    ),
    "no such channel": (
        lambda: tracked({"slide": "y"}),
        "There is no channel (of log 'run') named 'y'. Valid: x.",
    ),
    "no inputs": (without_inputs, "Mechanism 'bare' has no input that feedback could act on."),
    "shape of gains": (
        lambda: tracked({"slide": "x"}, [1.0, 2.0]),
        "The gains of the feedback must have shape (10, 1, 1), not shape (2,).",
    ),
    "gains that are no numbers": (
        lambda: tracked({"slide": "x"}, "stiff"),
        "The gains of the feedback must be numbers, not 'stiff'.",
    ),
    "infinite gains": (
        lambda: tracked({"slide": "x"}, [[np.nan]]),
        f"The gains of the feedback must be finite, not {[[[np.nan]]] * 10}.",
    ),
    "negative state weight": (
        lambda: tracked({"slide": "x"}, LQR(-1.0)),
        "The state_weight of LQR must be > 0, not -1.0.",
    ),
    "zero input weight": (
        lambda: tracked({"slide": "x"}, LQR(1.0, 0.0)),
        "The input_weight of LQR must be > 0, not 0.0.",
    ),
    "too many weights": (
        lambda: tracked({"slide": "x"}, LQR((1.0, 2.0))),
        "The state_weight of LQR must have shape (1,), not shape (2,).",
    ),
    "weight that is no number": (
        lambda: tracked({"slide": "x"}, LQR(1.0, "soft")),
        "The input_weight of LQR must be numbers, not 'soft'.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        call()
    assert str(found.value) == sentence
