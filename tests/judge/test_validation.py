"""`cross_validate`: other logs are explained as well as their noise allows, or they are not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from mechid import (
    MechidError,
    Parameters,
    Variational,
    cross_validate,
    full_discretization,
    joint,
    simulate,
    simulation_error,
)
from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import joint_position
from mechid.estimate.chain import ChainProblem
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.prepare import prepared
from mechid.estimate.problem import ShootingProblem
from mechid.studies import mechanisms

pytestmark = pytest.mark.xdist_group("validation")

STD, STEPS, H = 0.01, 120, 0.01
STEPPER = Variational(H)
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0)
FREE = Parameters(ROD).free("rod.mass", start=1.3).free("hinge.damping", start=0.2)
(TAU,) = ROD.input_names


def recorded(name, seed, amplitude=2.0, std=STD):
    torque = amplitude * np.sin(7.0 * H * np.arange(STEPS))
    run = simulate(ROD, STEPPER, STEPS, q=[1.0], v=[0.5], inputs=torque[:, None])
    q = run.q[:, 0] + STD * np.random.default_rng(seed).normal(size=STEPS + 1)
    log = Log(name, {"q": Channel(run.t, q, "rad"), "tau": Channel(run.t[:-1], torque, "N·m")}, ())
    start = Start(q=[0.9], q_std="free", v_std="free")
    return Experiment(log, [Measured(joint_position(ROD, "hinge"), "q", std=std)], {TAU: "tau"}, start)


SWING, OTHER, THIRD = recorded("swing", 0), recorded("other", 1, 4.0), recorded("third", 2, 3.0)


def known(mechanism=ROD, weight=None):
    """As much of a fit as a cross-validation looks at: here the truth, or what is given."""
    base = ShootingProblem(FREE, (prepared(STEPPER, SWING, FREE),), ((),), (None,))
    extra = {"problem": base} | (
        {} if weight is None else {"chain": ChainProblem(base, np.sqrt(weight) * np.eye(2))}
    )
    return SimpleNamespace(mechanism=mechanism, extra=extra)


FITS = {"exact": None, "soft": 1e9}


@pytest.fixture(scope="module")
def fits():
    return {name: known(weight=weight) for name, weight in FITS.items()}


@pytest.mark.parametrize("kind", FITS)
def test_a_good_fit_leaves_the_noise_of_other_logs(fits, kind):
    found = cross_validate(fits[kind], OTHER)
    assert found.score == pytest.approx(1.0, abs=0.2)
    assert found.samples == STEPS + 1
    assert found.score == pytest.approx(np.sqrt(2.0 * found.cost / (STEPS + 1 - 2)))
    (c,) = found.channels
    assert (c.experiment, c.channel, c.std) == ("other", "q", STD)
    assert c.rms == pytest.approx(STD, rel=0.25)
    assert str(found) == (
        f"Other logs are explained to {found.score:.3g} times their noise (121 samples; "
        f"rms residuals: other: q {c.rms:.3g})."
    )


def test_state_errors_that_cost_much_change_nothing(fits):
    exact, soft = (cross_validate(fits[kind], OTHER).score for kind in FITS)
    assert soft == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("kind", FITS)
def test_wrong_parameters_are_told_by_other_logs(fits, kind):
    """A mass 30 % too large."""
    wrong = known(FREE.apply([1.3, 0.1]), FITS[kind])
    score = cross_validate(wrong, OTHER).score
    assert score > 1.5
    assert score > 1.5 * cross_validate(fits[kind], OTHER).score


def test_several_logs(fits):
    """Squares and samples add up."""
    both = cross_validate(fits["exact"], [OTHER, THIRD])
    alone = [cross_validate(fits["exact"], e) for e in (OTHER, THIRD)]
    assert both.cost == pytest.approx(sum(v.cost for v in alone), rel=1e-5)
    assert both.samples == 2 * (STEPS + 1)
    assert [c.experiment for c in both.channels] == ["other", "third"]


def test_noise_that_is_not_given(fits):
    """It is taken from the fast changes of the log."""
    found = cross_validate(fits["exact"], recorded("other", 1, 4.0, std=None))
    assert found.channels[0].estimated
    assert found.channels[0].std == pytest.approx(STD, rel=0.3)
    assert found.score == pytest.approx(1.0, abs=0.3)


def test_a_known_start_is_not_estimated_again(fits):
    """At the truth nothing is left but noise; elsewhere the score tells."""
    good = replace(OTHER, start=Start(q=[1.0], v=[0.5]))
    assert cross_validate(fits["exact"], good).score == pytest.approx(1.0, abs=0.3)
    assert cross_validate(fits["exact"], replace(OTHER, start=Start(q=[1.3], v=[0.5]))).score > 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [full_discretization, partial(joint, state_error_weight=1e9), simulation_error]
)
def test_fits_of_every_estimator(estimator):
    """Little but noise is left of another log; on the log of the fit itself its cost comes back."""
    fit = estimator(ROD, STEPPER, SWING, FREE)
    assert cross_validate(fit, OTHER).score == pytest.approx(1.0, abs=0.2)
    assert cross_validate(fit, SWING).cost == pytest.approx(fit.cost[1], rel=1e-4)
    wrong = replace(fit, theta=fit.theta * [1.3, 1.0])
    assert cross_validate(wrong, OTHER).score > 1.5


REFUSED = {
    "no log": ([], "A cross-validation needs at least one experiment."),
    "a log's name": (["other.csv"], "A cross-validation needs Experiments, not 'other.csv'."),
    "nothing": (None, "A cross-validation needs Experiments, not None."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(fits, case):
    given, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        cross_validate(fits["exact"], given)
    assert str(found.value) == sentence
