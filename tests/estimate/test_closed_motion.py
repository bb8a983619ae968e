"""Regression on closed loops: the balance of work, and a four-bar found again from its crank's angle alone."""

from __future__ import annotations

import numpy as np
import pytest

from mechid import (
    Experiment,
    Measured,
    MechidError,
    Parameters,
    Start,
    Variational,
    assemble,
    joint_position,
    log_of,
    project_rates,
    regression,
    simulate,
)
from mechid.estimate.linear_form import MechanismForm
from mechid.estimate.measured_motion import Signals
from mechid.studies import mechanisms

BAR = mechanisms.four_bar(damping=0.3)
FREE = ("c.damping", "rocker.inertia.yy", "coupler.first_moment.x")
SHAPE = {"a": 1.0, "b": -0.5, "c": 1.2}


def freed(names=FREE):
    free = Parameters(BAR)
    for name in names:
        free = free.free(name)
    return free


def state(t):
    """All coordinates and rates where the crank turns as it is told, by other means than regression's."""
    angle, rate, bend = 1.0 + 0.6 * np.sin(3 * t), 1.8 * np.cos(3 * t), -5.4 * np.sin(3 * t)
    q = assemble(BAR, {**SHAPE, "a": angle}, hold="a")
    return q, project_rates(BAR, q, {"a": rate}, hold="a"), (angle, rate, bend)


def test_the_force_on_the_crank_does_the_work_that_energy_and_damping_need():
    model = BAR.lower()
    form = MechanismForm(freed(), measured=["a"], near=assemble(BAR, SHAPE))
    assert form.independent == form.outputs == ("a",)
    for t in (0.1, 0.4, 0.75, 1.3):
        _, v, crank = state(t)
        sample = np.array([[t, *crank, 0.0]])
        phi, y = form.rows(sample)
        force = float((phi[0] @ form.numbers.start - y[0])[0])
        h = 1e-5
        before, after = (sum(float(e) for e in model.energy(*state(t + s)[:2])) for s in (-h, h))
        assert force * crank[1] == pytest.approx((after - before) / (2 * h) + 0.3 * v[2] ** 2, abs=1e-6)


def torque(t):
    return 6.0 * np.sin(4.0 * t) + 3.0 * np.sin(9.0 * t + 1.0)


@pytest.mark.parametrize("shown", [("a",), ("a", "b", "c")])
def test_a_four_bar_is_found_again(shown):
    """But for the error of the simulation, which is of second order in its step."""
    truth = np.array([freed((n,)).entries[0].start for n in FREE])
    q, found = assemble(BAR, SHAPE), []
    free = Parameters(BAR)
    for name, start in zip(FREE, truth * (3.0, 0.5, 1.5), strict=True):
        free = free.free(name, start=start)
    for h in (1e-3, 5e-4):
        t = h * np.arange(round(4.0 / h) + 1)
        inputs = torque(t[:-1] + h / 2)[:, None]
        run = simulate(BAR, Variational(h, forces="balanced"), len(inputs), q=q, inputs=inputs)
        channels = {n: run.q[:, BAR.coordinate_names.index(n)] for n in shown} | {"u": torque(t)}
        log = log_of(t, channels, units={**dict.fromkeys(shown, "rad"), "u": "N·m"})
        measured = [Measured(joint_position(BAR, n), n, std=1e-3) for n in shown]
        experiment = Experiment(log, measured, inputs={"a.torque": "u"}, hold="mean", start=Start(q=q))
        fit = regression(BAR, experiment, free, signals=Signals(cutoff=np.inf, window=0.0))
        found.append(list(fit.values.values()))
        assert any("follow from the others" in note for note in fit.notes) == (len(shown) > 1)
    coarse, fine = np.array(found)
    np.testing.assert_allclose((coarse - truth) / (fine - truth), 4.0, rtol=0.1)
    np.testing.assert_allclose((4.0 * fine - coarse) / 3.0, truth, rtol=3e-4)


def test_what_is_missing_is_named():
    with pytest.raises(
        MechidError, match=r"moves in 1 way, .* of nothing do not tell: measure more of a, b, c\."
    ):
        MechanismForm(freed(), measured=[], near=assemble(BAR, SHAPE))


def test_out_of_reach_is_told():
    form = MechanismForm(freed(), measured=["c"], near=assemble(BAR, SHAPE))
    sample = np.array([[0.0, 0.0, 0.0, 0.0, 0.0]])
    with pytest.raises(MechidError, match="closure"):
        form.rows(sample)


def test_a_dead_point_is_told():
    """Where crank and coupler stand in one line the rocker's angle does not tell the crank's."""
    form = MechanismForm(freed(), measured=["c"], near=assemble(BAR, SHAPE))
    c = BAR.coordinate_names.index("c")
    crank = np.linspace(1.0, 1.0 + 2 * np.pi, 600)
    q, path = assemble(BAR, {**SHAPE, "a": 1.0}, hold="a"), []
    for a in crank:
        q = assemble(BAR, {**dict(zip(BAR.coordinate_names, q, strict=True)), "a": a}, hold="a")
        path.append(q[c])
    samples = np.zeros((600, 5))
    samples[:, 1] = path
    with pytest.raises(MechidError, match="dead point"):
        form.rows(samples)
