"""Many fits by one program against the same fits one by one."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import log_with

from mechid import (
    Condition,
    Experiment,
    Measured,
    MechidError,
    Parameters,
    Start,
    Variational,
    fit_batch,
    joint_position,
    simulate,
    simulation_error,
)
from mechid.studies import mechanisms

PENDULUM = mechanisms.pendulum(damping=0.1)
(TORQUE,) = PENDULUM.input_names
STEPPER, STEPS, STD = Variational(0.02), 80, 2e-3
U = 0.5 * np.sin(0.3 * np.arange(STEPS))
RUN = simulate(PENDULUM, STEPPER, STEPS, q=[0.8], inputs=U[:, None])
FREE = (
    Parameters(PENDULUM)
    .free("hinge.damping", start=0.14, bounds=(0.0, None))
    .free("rod.mass", start=1.2, transform="positive")
)


def experiment(seed: int, steps: int = STEPS, blow: float = 0.0, **given) -> Experiment:
    """With noise and an unknown first rate; blow: an input that no step can follow."""
    noise = STD * np.random.default_rng(seed).normal(size=STEPS + 1)
    u = np.where(np.arange(STEPS) == 40, blow, 0.0) + U
    log = log_with("run", q=(RUN.t[: steps + 1], (RUN.q[:, 0] + noise)[: steps + 1]), u=(RUN.t[:-1], u))
    measured = [Measured(joint_position(PENDULUM, "hinge"), "q", std=given.pop("std", STD))]
    start = Start(q=[0.8], v_std={"hinge": "free"}, **given)
    return Experiment(log, measured, inputs={TORQUE: "u"}, start=start)


@pytest.fixture(scope="module")
def batch():
    told = []
    given = [experiment(i) for i in range(5)]
    made = fit_batch(PENDULUM, STEPPER, given, FREE, progress=lambda *now: told.append(now))
    assert told == [(i, 5) for i in range(1, 6)]
    return made


def test_a_batch_is_its_fits_one_by_one(batch):
    assert len(batch) == 5
    assert batch.names == ("hinge.damping", "rod.mass")
    assert batch.converged.all()
    for i in range(5):
        alone = simulation_error(PENDULUM, STEPPER, experiment(i), FREE)
        std = np.array([p.std for p in alone.parameters.values()])
        assert np.abs(batch.values[i] - list(alone.values.values())).max() < 1e-3 * std.min()
        assert batch.stds[i] == pytest.approx(std, rel=1e-3)
    assert np.ptp(batch.values[:, 1]) > batch.stds[:, 1].mean()


def test_one_of_a_batch_is_a_fit(batch):
    fit = batch[-1]
    assert fit is batch[4]
    assert list(fit.values.values()) == pytest.approx(batch.values[4])
    assert fit.converged
    assert "run: v(hinge)" in fit.starts
    assert [f.outcome for f in batch[3:]] == list(batch.outcomes[3:])
    with pytest.raises(IndexError, match="5 results: there is no number 7"):
        batch[7]


def test_one_that_cannot_be_simulated_harms_no_other(batch):
    given = [experiment(0), experiment(1, blow=1e20), experiment(2)]
    mixed = fit_batch(PENDULUM, STEPPER, given, FREE)
    assert list(mixed.converged) == [True, False, True]
    assert mixed.outcomes[1] == "The start cannot be simulated."
    assert np.isnan(mixed.values[1]).all()
    assert np.array_equal(mixed.values[[0, 2]], batch.values[[0, 2]])
    with pytest.raises(MechidError, match="Fit 1 of the batch has no result"):
        mixed[1]


def test_bounds_hold():
    """The damping would go below its bound, in each fit; the mass follows what is left."""
    free = (
        Parameters(PENDULUM)
        .free("hinge.damping", start=0.3, bounds=(0.2, None))
        .free("rod.mass", start=1.2, transform="positive")
    )
    made = fit_batch(PENDULUM, STEPPER, [experiment(i) for i in range(2)], free)
    assert np.array_equal(made.values[:, 0], [0.2, 0.2])
    alone = simulation_error(PENDULUM, STEPPER, experiment(0), free)
    assert made.values[0, 1] == pytest.approx(alone.values["rod.mass"], rel=1e-4)


def test_starts_of_ones_own(batch):
    starts = np.array([[0.05, 0.9], [0.2, 1.5]])
    made = fit_batch(PENDULUM, STEPPER, [experiment(0), experiment(1)], FREE, starts=starts, workers=1)
    assert made.values == pytest.approx(batch.values[:2], rel=1e-6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda: {"experiments": []}, "at least one experiment"),
        (
            lambda: {"experiments": [experiment(0), experiment(1, 60)]},
            "Experiment 1 of the batch is of another form",
        ),
        (lambda: {"experiments": [experiment(0, std=None)]}, "Channel 'q' .* has no std"),
        (lambda: {"workers": 0}, "workers must be ≥ 1"),
        (lambda: {"starts": [[1.0, 1.0]]}, "The starts of the batch"),
        (lambda: {"solver": "fast"}, "LevenbergMarquardt, not by 'fast'"),
        (
            lambda: {"experiments": [experiment(0, conditions=[Condition("c", lambda q, v, m: v)])]},
            "cannot hold condition 'c' exactly",
        ),
    ],
)
def test_mistakes(given, sentence):
    arguments = {"experiments": [experiment(0), experiment(1)]} | given()
    with pytest.raises(MechidError, match=sentence):
        fit_batch(PENDULUM, STEPPER, arguments.pop("experiments"), FREE, **arguments)
