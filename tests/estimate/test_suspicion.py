"""Logs broken on purpose: every estimator says what it saw, which channel and when; sound logs leave no word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mechid import MechidError, Parameters, Variational, full_discretization, joint, read_log, simulate
from mechid.data.log import log_of
from mechid.dynamics.sensors import joint_position, joint_velocity
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Compared
from mechid.estimate.misread import unexplained
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.suspicion import before, outliers
from mechid.reference import reference_folder
from mechid.studies import furuta_qube, mechanisms

pytestmark = pytest.mark.xdist_group("suspicion")

H, N, STD = 0.01, 240, 2e-3
T = H * np.arange(N + 1)
TORQUE = 0.9 * np.sin(4.0 * T) + 0.5 * np.sin(1.3 * T + 0.5)
PENDULUM = mechanisms.pendulum(length=0.5, mass=1.2, damping=0.15)
STEPPER = Variational(H)
TRUTH = {"rod.mass": 1.2, "hinge.damping": 0.15}
FREE = (
    Parameters(PENDULUM)
    .free("rod.mass", start=1.0, bounds=(0.05, 20.0))
    .free("hinge.damping", start=0.3, bounds=(0.0, 5.0))
)


@pytest.fixture(scope="module")
def swing() -> tuple[np.ndarray, np.ndarray]:
    """Angle and rate of a pendulum that is pushed, with noise."""
    moved = simulate(PENDULUM, STEPPER, N, q={"hinge": 0.4}, inputs=TORQUE[:-1, None])
    rng = np.random.default_rng(0)
    angle = np.asarray(moved.q)[:, 0] + STD * rng.normal(size=N + 1)
    return angle, np.asarray(moved.v)[:, 0] + 5.0 * STD * rng.normal(size=N + 1)


def experiment(
    angle: np.ndarray, torque: np.ndarray = TORQUE, rate: np.ndarray | None = None, std: float | None = STD
) -> Experiment:
    channels = {"q": angle, "tau": torque} | ({} if rate is None else {"qd": rate})
    log = log_of(T, channels, units={"q": "rad", "tau": "N·m"}, name="swing")
    measured = [Measured(joint_position(PENDULUM, "hinge"), "q", std=std)]
    if rate is not None:
        measured.append(Measured(joint_velocity(PENDULUM, "hinge"), "qd", std=5.0 * STD))
    return Experiment(
        log,
        measured,
        inputs={"hinge.torque": "tau"},
        start=Start(q={"hinge": float(angle[0])}, q_std=0.01),
    )


def broken(x: np.ndarray, places: Any, values: Any) -> np.ndarray:
    x = x.copy()
    x[places] = values
    return x


def told(e: Experiment) -> tuple[str, ...]:
    return before(e, T[0], T[-1])


# From the channels


def test_a_sound_log_leaves_no_word(swing):
    angle, rate = swing
    assert told(experiment(angle, rate=rate)) == ()
    assert told(experiment(np.round(angle / 0.003) * 0.003, rate=rate)) == ()
    assert told(experiment(broken(angle, [20, 50, 51], np.nan))) == ()


def test_a_gap_is_told_with_its_times(swing):
    (note,) = told(experiment(broken(swing[0], slice(100, 140), np.nan)))
    assert note == (
        "Channel 'q' of experiment 'swing' has no samples from 0.99 to 1.4 s. What is missing is passed over: it "
        "costs nothing and tells nothing."
    )


def test_channels_with_the_same_gaps_share_a_sentence(swing):
    angle, rate = (broken(broken(x, slice(100, 140), np.nan), slice(180, 190), np.nan) for x in swing)
    (note,) = told(experiment(angle, rate=rate))
    assert note.startswith(
        "Channels 'q' and 'qd' of experiment 'swing' have 2 gaps, 0.52 s in all, the longest from 0.99 to 1.4 s."
    )


def test_spikes_are_told_with_their_times_and_what_takes_them_out(swing):
    angle = swing[0].copy()
    angle[[50, 120, 203]] += [0.9, -0.8, 1.0]
    (note,) = told(experiment(angle))
    assert note.startswith(
        "Channel 'q' of experiment 'swing' has 3 spikes, at 0.5, 1.2, 2.03 s, the largest of 1"
    )
    assert "Log.despiked('q'" in note
    torque = TORQUE.copy()
    torque[77] += 30.0
    (note,) = told(experiment(swing[0], torque))
    assert note.startswith("Channel 'tau' of experiment 'swing' has a spike of 30")
    assert " N·m at 0.77 s. Log.despiked('tau'" in note


def test_a_stuck_encoder_is_told_with_its_times(swing):
    angle = broken(swing[0], slice(130, 170), swing[0][130])
    (note,) = told(experiment(angle))
    assert note.startswith("Channel 'q' of experiment 'swing' stands at ")
    assert " rad from 1.3 to 1.69 s, though it moves right before and after and 'tau' goes on" in note
    assert "Log.without('q', 1.3, 1.69)" in note


def test_a_machine_at_rest_is_not_stuck(swing):
    angle, rate = (broken(x, slice(130, 170), x[130]) for x in swing)
    assert not told(experiment(angle, broken(TORQUE, slice(130, 170), TORQUE[130]), rate))


def test_a_sensor_that_never_moves_beside_one_that_does_is_told(swing):
    (note,) = told(experiment(np.full(N + 1, 0.3), rate=swing[1]))
    assert note.startswith(
        "Channel 'q' of experiment 'swing' shows one value throughout, 0.3 rad, while 'qd' moves"
    )


def test_a_sensor_that_drops_out_is_told(swing):
    (note,) = told(experiment(broken(swing[0] + 1.0, slice(130, 138), 0.0)))
    assert note.startswith("Channel 'q' of experiment 'swing' drops to 0 rad from 1.3 to 1.37 s")
    assert "Log.without('q', 1.3, 1.37)" in note


def test_an_input_that_stands_is_told(swing):
    (note,) = told(experiment(swing[0], broken(TORQUE, slice(150, 180), TORQUE[150])))
    assert note.startswith("Channel 'tau' of experiment 'swing' stands at ")
    assert " from 1.5 to 1.79 s" in note
    assert "'q' goes on" in note
    # a square wave stands too, and so does what was switched off
    assert not told(experiment(swing[0], np.where(TORQUE > 0, 0.7, -0.4)))
    assert not told(experiment(swing[0], broken(TORQUE, slice(110, 241), 0.0)))


def test_an_input_that_saturates_is_told(swing):
    (note,) = told(experiment(swing[0], np.clip(TORQUE, -0.7, 0.7)))
    assert note.startswith("Channel 'tau' of experiment 'swing' is cut off at 0.7 N·m")
    assert "what acted may differ" in note
    assert not told(experiment(swing[0], np.sign(TORQUE)))


def test_a_rate_of_the_wrong_sign_is_told(swing):
    (note,) = told(experiment(swing[0], rate=-swing[1]))
    assert note.startswith("Channel 'qd' of experiment 'swing' is minus the rate of 'q' (correlation 1.00)")
    assert "Log.scaled('qd', -1)" in note


@pytest.mark.parametrize("estimate", [simulation_error, joint, full_discretization])
def test_sensors_that_never_move_are_refused(swing, estimate):
    with pytest.raises(
        MechidError, match="Nothing that experiment 'swing' measures moves, though its input 'tau'"
    ):
        estimate(PENDULUM, STEPPER, experiment(0.0 * T + 0.3), FREE)


# From the residuals


def compared(residual: np.ndarray, std: float = STD) -> Compared:
    return Compared("swing", "q", T, 0.0 * T, residual, std, False)


def test_outliers_that_carry_the_cost_are_told():
    noise = STD * np.random.default_rng(3).normal(size=N + 1)
    assert outliers([compared(noise)]) == ()
    (note,) = outliers([compared(broken(noise, [30, 99], [0.2, -0.3]))])
    assert note.startswith("Channel 'q' of experiment 'swing': 2 samples, at 0.3, 0.99 s, carry 9")
    # a stretch is what the model lacks, and what states follow is no outlier
    assert outliers([compared(broken(noise, slice(30, 33), 0.3))]) == ()
    assert outliers([compared(1e-3 * broken(noise, [30], 0.5 * STD), STD)]) == ()
    assert (
        outliers([compared(broken(noise, [30], 0.3))], ["Channel 'q' of experiment 'swing' has a spike of 0"])
        == ()
    )


# Fits


def near_the_truth(fit: Any) -> None:
    for name, p in fit.parameters.items():
        assert abs(p.value - TRUTH[name]) < 3.0 * p.std, name


@pytest.mark.slow
@pytest.mark.parametrize("estimate", [simulation_error, full_discretization])
def test_gaps_are_handled(swing, estimate):
    fit = estimate(PENDULUM, STEPPER, experiment(broken(swing[0], slice(100, 140), np.nan)), FREE)
    near_the_truth(fit)
    assert fit.converged
    assert [n for n in fit.notes if "no samples from 0.99 to 1.4 s" in n]
    clean = estimate(PENDULUM, STEPPER, experiment(swing[0]), FREE)
    near_the_truth(clean)
    assert clean.notes == ()


@pytest.mark.slow
def test_spikes_are_handled_by_the_filter_of_the_log(swing):
    angle = swing[0].copy()
    angle[[50, 120, 203]] += [0.9, -0.8, 1.0]
    spiked = experiment(angle)
    assert [n for n in simulation_error(PENDULUM, STEPPER, spiked, FREE).notes if "3 spikes" in n]
    (note,) = told(spiked)
    options = {"threshold": 3.0, "window": 5} if "threshold=3" in note else {}
    log = spiked.log.despiked("q", **options)
    fit = simulation_error(
        PENDULUM, STEPPER, Experiment(log, spiked.measured, spiked.inputs, spiked.start), FREE
    )
    near_the_truth(fit)
    assert fit.notes == ()


FEW = LevenbergMarquardt(max_iterations=5)
ESTIMATORS = {
    "simulation error": lambda e: simulation_error(PENDULUM, STEPPER, e, FREE),
    "simulation error, unfinished": lambda e: simulation_error(PENDULUM, STEPPER, e, FREE, FEW),
    "joint": lambda e: joint(PENDULUM, STEPPER, e, FREE, FEW, state_error_weight=100.0, marginal=False),
    "full discretisation": lambda e: full_discretization(PENDULUM, STEPPER, e, FREE, FEW),
}


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_swapped_sign_is_told_however_the_fit_ended(swing, estimator):
    fit = ESTIMATORS[estimator](experiment(-swing[0]))
    (note,) = [n for n in fit.notes if "swapped" in n]
    assert note.startswith(
        "Experiment 'swing' is explained far better with the sign of channel 'q' or of input channel 'tau' "
        "swapped: the residual of 'q'"
    )
    assert " to 0.00201 rad, and the parameters would be others. Log.scaled('q', -1) turns it" in note
    assert fit.converged or estimator != "simulation error"


@pytest.mark.slow
def test_a_zero_half_a_turn_off_is_told(swing):
    fit = simulation_error(PENDULUM, STEPPER, experiment(swing[0] + np.pi), FREE)
    (note,) = [n for n in fit.notes if "half a turn" in n]
    assert "with channel 'q' half a turn on (π rad added): its residual would fall from" in note


@pytest.mark.slow
def test_of_two_channels_the_swapped_one_is_told(swing):
    fit = simulation_error(PENDULUM, STEPPER, experiment(-swing[0], rate=swing[1]), FREE)
    (note,) = [n for n in fit.notes if "explained far better" in n]
    assert "with the sign of channel 'q' swapped: its residual would fall from" in note


@pytest.mark.slow
def test_a_model_that_is_wrong_is_no_swapped_sign(swing):
    """Twice the motion: nothing that another sign would explain, and what is left is told."""
    fit = simulation_error(PENDULUM, STEPPER, experiment(2.0 * swing[0]), FREE)
    assert not [n for n in fit.notes if "explained far better" in n]


@pytest.mark.slow
def test_what_no_reading_explains_is_told_with_its_size(swing):
    """A torque that was not logged: the sentence's numbers are those of the residuals; silence where it was."""
    fit = simulation_error(PENDULUM, STEPPER, experiment(swing[0], np.zeros(N + 1), std=None), FREE)
    (note,) = [n for n in fit.notes if "unexplained" in n]
    rms, spread = fit.channels[0].rms, float(np.std(swing[0]))
    assert note.startswith(
        f"The fit leaves {100 * rms / spread:.0f} % of 'q' of experiment 'swing' unexplained"
    )
    assert f"(residuals of {rms:.3g} of a spread of {spread:.3g} rad)" in note
    assert note.endswith("the input 'tau' is constant throughout; was nothing else put in?")
    sound = simulation_error(PENDULUM, STEPPER, experiment(swing[0], std=None), FREE)
    assert not [n for n in sound.notes if "unexplained" in n]


def whirl(change: Any) -> Any:
    """A fit of two damped joints to a motion of theirs, of which something was changed."""
    model = mechanisms.furuta(damping_arm=0.01, damping_pendulum=0.002)
    steps = 400
    t = H * np.arange(steps + 1)
    push = 0.03 * np.sin(5.0 * t) + 0.015 * np.sin(1.7 * t)
    moved = simulate(model, STEPPER, steps, q={"swing": 1.0}, inputs=push[:-1, None])
    angles = np.asarray(moved.q) + 1e-3 * np.random.default_rng(5).normal(size=moved.q.shape)
    angles = change(angles)
    log = log_of(
        t, {"q1": angles[:, 0], "q2": angles[:, 1], "u": push}, units={"q1": "rad", "q2": "rad"}, name="whirl"
    )
    e = Experiment(
        log,
        [Measured(joint_position(model, "turn", "swing"), ("q1", "q2"))],
        inputs={"turn.torque": "u"},
        start=Start(q={"turn": angles[0, 0], "swing": angles[0, 1]}, q_std=0.01),
    )
    free = Parameters(model).free("turn.damping", start=0.02, bounds=(0.0, 1.0))
    free = free.free("swing.damping", start=0.004, bounds=(0.0, 1.0)).free("pendulum.inertia.xx", start=5e-3)
    return simulation_error(model, STEPPER, e, free)


def readings(fit: Any) -> list[str]:
    return [n for n in fit.notes if "unexplained" in n or "explained far better" in n]


@pytest.mark.slow
def test_channels_in_each_others_place_are_told():
    assert readings(whirl(lambda q: q)) == []
    (note,) = readings(whirl(lambda q: q[:, ::-1]))
    assert "with channels 'q1' and 'q2' in each other's place: its residual would fall from" in note


@pytest.mark.slow
def test_an_angle_with_an_offset_is_told():
    (note,) = readings(whirl(lambda q: q + np.array([0.0, 0.2])))
    added = float(note.split(" rad added to channel 'q2'")[0].split()[-1].replace("−", "-"))
    assert added == pytest.approx(-0.2, abs=0.03)


def test_a_resting_sensor_is_not_unexplained():
    """Its residuals are all that it shows."""
    noise = STD * np.random.default_rng(3).normal(size=N + 1)
    at_rest = Compared("swing", "q", T, 0.3 + noise, noise, STD, True)
    moving = Compared("swing", "q", T, np.sin(T), 0.3 * np.cos(20 * T), STD, True)
    assert unexplained([at_rest]) == []
    assert unexplained([moving]) == [moving]


# A real machine


@pytest.mark.slow
def test_a_swapped_torque_of_a_real_pendulum_is_told():
    """The motor-driven pendulum of DFKI: silence as it was logged, a sentence with its torque turned round."""
    path = reference_folder() / "data" / "dfki_simple_pendulum" / "ddp.csv"
    if not path.is_file():
        pytest.skip(f"needs the log {path}")
    log = read_log(path)
    rod = mechanisms.pendulum(length=0.9, mass=0.68, damping=0.1)
    free = Parameters(rod).free("rod.mass", bounds=(0.1, 3.0)).free("hinge.damping", bounds=(0.0, 1.0))
    found = []
    for given in (log, log.scaled("torque", -1.0)):
        e = Experiment(
            given,
            [Measured(joint_position(rod, "hinge"), "position")],
            inputs={"hinge.torque": "torque"},
            start=Start(q={"hinge": float(log["position"].values[0])}),
            hold="mean",
            span=(0.0, 3.0),
        )
        fit = simulation_error(rod, Variational(0.01), e, free)
        found.append([n for n in fit.notes if not n.startswith("Neighbouring residuals")])
    assert found[0] == []
    (note,) = found[1]
    assert "the sign of channel 'position' or of input channel 'torque' swapped" in note


@pytest.mark.slow
def test_a_swapped_angle_from_which_parameters_ran_away_is_told():
    """The QUBE: an inertia that grew without bound does not come back when the sign is turned; its start does."""
    folder = reference_folder() / "data" / "qube_furuta"
    if not folder.is_dir():
        pytest.skip(f"needs the logs in {folder}")
    log = furuta_qube.recording(folder / "chirp_pos_0.csv", 8.0).scaled("alpha", -1.0)
    names = ("J_Azz", "J_Byy", "K", "k_cable", "theta_cable", "delay", "b1", "b2")
    free = furuta_qube.freed(furuta_qube.qube("viscous"), names, furuta_qube.STARTS)
    fit = simulation_error(
        free.mechanism, Variational(0.004, forces="balanced"), furuta_qube.experiment(log), free
    )
    assert any("with the sign of channel 'alpha' swapped" in note for note in fit.notes)
