"""Regression on closed loops: the balance of work, and a four-bar found again from its crank's angle alone."""

from __future__ import annotations

import numpy as np
import pytest

from mechid import (
    BDF,
    Experiment,
    Measured,
    MechidError,
    OneStep,
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


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        (lambda h: Variational(h, forces="balanced"), True),
        (lambda h: BDF(h, 2), False),
        (lambda h: OneStep(h), False),
    ],
    ids=["variational", "bdf2", "midpoint"],
)
def test_rows_of_a_stepper_on_a_closed_loop(kind, exact):
    """Variational's hold exactly for what it simulates; the others' rates are measured, to second order."""
    truth = np.array([freed((n,)).entries[0].start for n in FREE])
    q, off = assemble(BAR, SHAPE), []
    for h in (1e-3,) if exact else (1e-3, 5e-4):
        stepper = kind(h)
        u = torque(h * np.arange(round(2.0 / h)))
        run = simulate(BAR, stepper, len(u), q=q, inputs=u[:, None])
        log = log_of(run.t, {"a": run.q[:, 0], "u": np.append(u, 0.0)}, units={"a": "rad", "u": "N·m"})
        measured = [Measured(joint_position(BAR, "a"), "a", std=1e-3)]
        experiment = Experiment(log, measured, inputs={"a.torque": "u"}, start=Start(q=q))
        signals = Signals(cutoff=np.inf, window=0.0)
        fit = regression(BAR, experiment, freed(), stepper=stepper, signals=signals)
        off.append(np.array(list(fit.values.values())) / truth - 1.0)
    if exact:
        np.testing.assert_allclose(off[0], 0.0, atol=1e-5)
    else:
        assert np.all(np.abs(off[0]) > 2.5 * np.abs(off[1]))
        assert np.all(np.abs((4.0 * off[1] - off[0]) / 3.0) < 0.25 * np.abs(off[1]).max())
