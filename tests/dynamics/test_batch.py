"""Many simulations against the same ones alone, core by core and all together as on an accelerator."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mechid import MechidError, Parameters, SimulationError, Trajectory, Variational, simulate, simulate_batch
from mechid.dynamics import batch
from mechid.dynamics.batch import _together, chunks_together
from mechid.dynamics.driver import solve_chunks
from mechid.dynamics.simulate import planned
from mechid.studies import mechanisms

STEPS = 300
STEPPER = Variational(0.01)


def assert_same(one: Trajectory, other: Trajectory, tolerance: float = 0.0) -> None:
    assert one.steps == other.steps
    assert one.outcome == other.outcome
    for name in ("t", "q", "v", "multipliers", "inputs"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0.0) <= tolerance * (1.0 + np.abs(b).max(initial=0.0)), name


@pytest.fixture(scope="module")
def cart():
    return mechanisms.cart_pendulum(damping=0.1)


def different(cart: Any) -> list[dict[str, Any]]:
    """Runs that differ in every argument but the controller."""
    free = Parameters(cart).free("pole.mass")
    return [
        {},
        {"q": {"hinge": 1.0}},
        {"q": [0.1, -2.0], "v": [0.3, 1.0], "inputs": [0.5]},
        {"inputs": np.sin(np.arange(STEPS))[:, None], "t0": 2.0},
        {"q": [0.0, 1.0], "model": free(np.array([2.0]))},
    ]


def test_a_batch_is_its_runs_one_by_one_in_their_order(cart):
    runs, told = different(cart), []
    done = simulate_batch(cart, STEPPER, STEPS, runs, progress=lambda *now: told.append(now))
    assert told == [(i, 5) for i in range(1, 6)]
    for run, trajectory in zip(runs, done, strict=True):
        assert_same(trajectory, simulate(cart, STEPPER, STEPS, **run))
    ends = [t.q[-1] for t in done]
    assert min(np.abs(a - b).max() for i, a in enumerate(ends) for b in ends[:i]) > 1e-3
    assert done[4].model is runs[4]["model"]
    for workers in (1, 3):
        again = simulate_batch(cart, STEPPER, STEPS, runs, workers=workers)
        assert all(np.array_equal(a.q, b.q) for a, b in zip(again, done, strict=True))
    assert done.q.shape == done.v.shape == (5, STEPS + 1, 2)
    assert all(np.array_equal(done.q[i], t.q) for i, t in enumerate(done))
    assert list(simulate_batch(cart, STEPPER, STEPS, [])) == []


def push(t: Any, q: Any, v: Any) -> Any:
    return jnp.array([-10.0 * q[0] + jnp.sin(t)])


def test_runs_may_have_controllers(cart):
    runs = [{"inputs": push, "q": [0.1 * i, 1.0]} for i in range(3)] + [{"inputs": [0.1]}]
    done = simulate_batch(cart, STEPPER, STEPS, runs)
    for run, trajectory in zip(runs, done, strict=True):
        assert_same(trajectory, simulate(cart, STEPPER, STEPS, **run))
    assert done[0].controller is push
    assert done[3].controller is None


def test_what_is_asked_of_runs(cart):
    with pytest.raises(MechidError, match=r"argument \(of run 1\).*'steps'.*q, v, inputs, t0, model"):
        simulate_batch(cart, STEPPER, 2, [{}, {"steps": 3}])
    for workers in (0, -1):
        with pytest.raises(MechidError, match="workers must be ≥ 1"):
            simulate_batch(cart, STEPPER, 2, [{}], workers=workers)
    with pytest.raises(MechidError, match="no coordinate named 'elbow'"):
        simulate_batch(cart, STEPPER, 2, [{}, {"q": {"elbow": 1.0}}])


# A blow that no step can follow: in the first piece of one run, in the second of another


FIRST, SECOND = 100, 270


@pytest.fixture(scope="module")
def struck():
    early, late = (np.where(np.arange(STEPS) == k, 1e20, 0.1)[:, None] for k in (FIRST, SECOND))
    still = {"q": [0.0, 1.0]}
    return [still, still | {"inputs": late}, {"q": [0.2, -2.0]}, still | {"inputs": early}, {"inputs": [0.5]}]


def test_runs_that_fail(cart, struck):
    ended = simulate_batch(cart, STEPPER, STEPS, struck, throw=False)
    assert [t.steps for t in ended] == [STEPS, SECOND, STEPS, FIRST, STEPS]
    assert list(ended.solved) == [t.steps for t in ended]
    assert np.isnan(ended.q[1, SECOND + 1 :]).all()
    assert np.isfinite(ended.q[1, : SECOND + 1]).all()
    assert "could not be solved" in ended.outcomes[1]
    assert ended[0].outcome == f"All {STEPS} steps were solved."
    with pytest.raises(SimulationError, match="could not be solved") as error:
        simulate_batch(cart, STEPPER, STEPS, struck)
    assert_same(error.value.trajectory, ended[1])


def test_all_together_with_some_that_fail(cart, struck):
    """What an accelerator does, here on a CPU: lanes that fail end as they do alone, the others go on."""
    plans = [planned(cart, STEPPER, STEPS, **run) for run in struck]
    alone = simulate_batch(cart, STEPPER, STEPS, struck, throw=False)
    assert [sum(c.solved for c in x) for x in chunks_together(plans)] == [t.steps for t in alone]
    told = []
    together = _together(plans, False, lambda *done: told.append(done))
    for one, other in zip(together, alone, strict=True):
        assert one.steps == other.steps
        assert one.outcome[:40] == other.outcome[:40]
        assert np.abs(one.q - other.q).max() < 1e-10
        assert np.abs(one.v - other.v).max() < 1e-10
    assert told == [(5, 5)]
    with pytest.raises(SimulationError, match="could not be solved"):
        _together(plans, True, None)


def test_groups_keep_their_order(cart, monkeypatch):
    """Runs with one controller go together; each trajectory comes back at its run's place."""
    grouped = []

    def one_by_one(plans: Any) -> list[Any]:
        grouped.append([p.q[0] for p in plans])
        return [list(solve_chunks(p)) for p in plans]

    monkeypatch.setattr(batch, "chunks_together", one_by_one)
    inputs = (None, push, None, push, [0.3])
    runs = [{"q": [float(i), 1.0], "inputs": u} for i, u in enumerate(inputs)]
    told: list[Any] = []
    plans = [planned(cart, STEPPER, 20, **run) for run in runs]
    together = _together(plans, True, lambda *done: told.append(done))
    assert grouped == [[0.0, 2.0, 4.0], [1.0, 3.0]]
    assert told == [(3, 5), (5, 5)]
    for one, run in zip(together, runs, strict=True):
        assert_same(one, simulate(cart, STEPPER, 20, **run))


@pytest.mark.slow
def test_all_together_with_models_and_controllers(cart):
    """Models of their own are stacked; runs with one controller go together, and the order is kept."""
    runs = different(cart)
    runs = [runs[0], {"inputs": push}, runs[4], {"inputs": push, "q": [0.2, 0.5]}, *runs[1:4]]
    told: list[Any] = []
    plans = [planned(cart, STEPPER, STEPS, **run) for run in runs]
    together = _together(plans, True, lambda *done: told.append(done))
    for one, run in zip(together, runs, strict=True):
        assert_same(one, simulate(cart, STEPPER, STEPS, **run), 1e-10)
    assert told == [(5, 7), (7, 7)]
