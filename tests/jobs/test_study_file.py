"""Study files: every mistake is one sentence with its line, before anything is simulated."""

import sys
import tomllib

import jax
import numpy as np
import pytest

from mechid.cli import main
from mechid.data.log import read_log
from mechid.dynamics.spook import Spook
from mechid.dynamics.variational import Variational
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.jobs.study_file import read_study
from mechid.jobs.toml_lines import key_lines

URDF = """<robot name="pendulum">
  <link name="base"/>
  <link name="rod">
    <inertial><origin xyz="0 0 -0.25"/><mass value="1"/>
      <inertia ixx="0.02" iyy="0.02" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="hinge" type="continuous">
    <parent link="base"/><child link="rod"/><axis xyz="0 1 0"/><dynamics damping="0.1"/>
  </joint>
</robot>
"""
LOG = "t [s],q [rad],u [N·m]\n" + "".join(f"{0.01 * k:.2f},{0.001 * k + 0.2:.4f},0.1\n" for k in range(31))
STUDY = """model = "pendulum.urdf"

[stepper]
dt = 0.01

[solver]
max_iterations = 20

[[log]]
file = "run.csv"
inputs = {hinge = "u"}
measured = [{joint = "hinge", channels = "q", std = 1e-3}]
start = {q = {hinge = "q"}, q_std = "free"}

[parameters]
"hinge.damping" = {start = 0.2, bounds = [0, 5]}
"""
TOP = (
    "Valid: model, actuators, delays, estimator, state_error_weight, method, segments, out, stepper, solver, log, "
    "parameters, … (17 in all)."
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, a log and a study, and the process in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
    (tmp_path / "pendulum.urdf").write_text(URDF)
    (tmp_path / "run.csv").write_text(LOG)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def told(monkeypatch, capsys, *arguments):
    """What the command prints on its error stream, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["mechid", "fit", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    streams = capsys.readouterr()
    assert streams.out == ""
    return streams.err, stop.value.code


MISTAKES = [
    (
        1,
        'modell = "pendulum.urdf"',
        1,
        "There is no key of the study named 'modell'. Did you mean model or method or delays? Valid: "
        "model, actuators, delays, estimator, state_error_weight, method, segments, out, stepper, solver, log, "
        "parameters, … (17 in all).",
    ),
    (1, "model = 3", 1, "'model' must be a text, not 3."),
    (
        1,
        'model = "pendulun.urdf"',
        1,
        "There is no file 'pendulun.urdf'. Models in its folder: pendulum.urdf.",
    ),
    (1, 'model = "run.csv"', 1, "'run.csv' is not valid XML: syntax error in line 1."),
    (1, "", None, "The study needs the key 'model'."),
    (1, 'model = "pendulum.urdf', 1, "no TOML at column 23: Illegal character '\\n'."),
    (
        2,
        'actuators = "torqe"',
        2,
        "There is no kind of actuators named 'torqe'. Did you mean torque? Valid: torque, none.",
    ),
    (
        2,
        "delays = {hinje = 0.01}",
        2,
        "There is no input named 'hinje'. Valid: hinge.torque.",
    ),
    (2, "delays = {hinge = true}", 2, "'hinge' must be a number, not true."),
    (
        2,
        'estimator = "simulation"',
        2,
        "There is no estimator named 'simulation'. Did you mean simulation-error? Valid: simulation-error, "
        "joint, full-discretization, regression.",
    ),
    (2, 'model = "again.urdf"', 2, "no TOML at column 21: Cannot overwrite a value."),
    (2, "out = 5", 2, "'out' must be a text, not 5."),
    (
        3,
        "[steper]",
        3,
        "There is no key of the study named 'steper'. Did you mean stepper or solver? Valid: model, "
        "actuators, delays, estimator, state_error_weight, method, segments, out, stepper, solver, log, "
        "parameters, … (17 in all).",
    ),
    (4, 'dt = "0.01"', 4, "'dt' must be a number > 0, not '0.01'."),
    (4, "dt = 0", 4, "'dt' must be a number > 0, not 0."),
    (4, "dt = nan", 4, "'dt' must be a number > 0, not nan."),
    (
        4,
        'dt = 0.01\nkind = "bdf7"',
        5,
        "There is no stepper named 'bdf7'. Did you mean bdf6 or bdf5 or bdf4? Valid: variational, bdf1, "
        "bdf2, bdf3, bdf4, bdf5, bdf6, spook, midpoint, trapezoidal.",
    ),
    (4, 'kind = "bdf2"', 3, "[stepper] needs the key 'dt'."),
    (
        4,
        'dt = 0.01\nrule = "midpont"',
        5,
        "There is no rule named 'midpont'. Did you mean midpoint? Valid: midpoint, trapezoidal.",
    ),
    (
        4,
        'dt = 0.01\nkind = "spook"\nrule = "midpoint"',
        6,
        "A spook stepper has no key 'rule'; valid: kind, dt, compliance, rotational_compliance, "
        "relaxation_time, rotational_relaxation_time, constraints.",
    ),
    (
        4,
        'dt = 0.01\nkind = "spook"\nconstraints.hing.compliance = 1e-4',
        3,
        "There is no constraint (of Spook) named 'hing'. Did you mean hinge? Valid: hinge.",
    ),
    (
        4,
        "dt = 0.01\norder = 2",
        5,
        "There is no key of [stepper] named 'order'. Did you mean forces? Valid: kind, dt, rule, forces, "
        "absolute_tolerance, relative_tolerance, compliance, rotational_compliance, relaxation_time, "
        "rotational_relaxation_time, constraints.",
    ),
    (4, "dt = true", 4, "'dt' must be a number > 0, not true."),
    (4, "dt = 0.2", 9, "Log 'run' takes 0.3 s, less than two steps of dt = 0.2 s: take a smaller dt."),
    (
        4,
        "dt = 1e-12",
        9,
        "Log 'run' takes 0.3 s, 3e+11 steps of dt = 1e-12 s; at most 1e+08 are possible: take a shorter "
        "span or a larger dt.",
    ),
    (
        7,
        'kind = "newton"',
        7,
        "There is no solver named 'newton'. Valid: levenberg-marquardt, steepest-descent, lbfgsb.",
    ),
    (7, "max_iterations = 2.5", 7, "'max_iterations' must be a whole number ≥ 1, not 2.5."),
    (7, "max_iterations = 0", 7, "'max_iterations' must be a whole number ≥ 1, not 0."),
    (
        7,
        "armijo_alpha = 0.4",
        7,
        "The solver levenberg-marquardt has no key 'armijo_alpha'; valid: kind, max_iterations, "
        "cost_tolerance, step_tolerance, initial_damping.",
    ),
    (
        7,
        "max_iteration = 3",
        7,
        "There is no key of [solver] named 'max_iteration'. Did you mean max_iterations? Valid: kind, "
        "max_iterations, cost_tolerance, step_tolerance, initial_damping, armijo_alpha, armijo_beta, "
        "first_step, gradient_tolerance.",
    ),
    (7, "cost_tolerance = -1", 7, "'cost_tolerance' must be a number ≥ 0, not -1."),
    (
        9,
        "[log]\nx=1",
        10,
        "There is no key of [log] named 'x'. Valid: file, measured, inputs, start, span, hold, time, "
        "rate, units, columns, filter, feedback, … (20 in all).",
    ),
    (10, 'file = "runn.csv"', 10, "There is no file 'runn.csv'."),
    (10, 'file = ["run.csv"]', 10, "'file' must be a text, not ['run.csv']."),
    (10, "", 9, "[[log]] needs the key 'file'."),
    (
        10,
        'file = "run.csv"\ntime = "clock"',
        11,
        "There is no column (in 'run.csv') named 'clock'. Valid: t, q, u.",
    ),
    (
        10,
        'file = "run.csv"\ntime_unit = "weeks"',
        11,
        "There is no unit of time named 'weeks'. Valid: s, ms, us, ns, min, h.",
    ),
    (
        10,
        'file = "run.csv"\nunits = {q = "furlong"}',
        11,
        "There is no unit named 'furlong'. Valid: -, %, rad, mrad, deg, degree, degrees, rev, rad/s, "
        "mrad/s, deg/s, dps, … (111 in all).",
    ),
    (
        10,
        'file = "run.csv"\nunits = {p = "deg"}',
        11,
        "There is no channel (in the units for 'run.csv') named 'p'. Valid: q, u.",
    ),
    (
        10,
        'file = "run.csv"\nunits = {q = "N"}',
        13,
        "Channel 'q' is in N, but 'joint' is in rad: take another channel, or tell its unit in the file "
        "with the key 'units'.",
    ),
    (
        10,
        'file = "run.csv"\ncolumns = {q = "angle", u = "u"}',
        11,
        "There is no column (in 'run.csv') named 'angle'. Valid: q, u.",
    ),
    (
        10,
        'file = "run.csv"\nspan = [2, 1]',
        11,
        "'span' must be from an earlier to a later time (s), not 2 to 1.",
    ),
    (
        10,
        'file = "run.csv"\nspan = [5, 9]',
        11,
        "Nothing was measured from 5 to 9 s; the log runs from 0 to 0.3 s.",
    ),
    (10, 'file = "run.csv"\nspan = [0]', 11, "'span' must be a list of 2 numbers, not [0]."),
    (
        10,
        'file = "run.csv"\nhold = "linear"',
        11,
        "There is no hold named 'linear'. Valid: zero-order, midpoint, mean, end.",
    ),
    (
        10,
        'file = "run.csv"\nfilter = {cutof = 3}',
        11,
        "There is no key of 'filter' named 'cutof'. Did you mean cutoff? Valid: cutoff, channels, order.",
    ),
    (
        10,
        'file = "run.csv"\nfilter = {cutoff = 500}',
        11,
        "Channel 'q': a cutoff of 500 Hz is not below half the rate, 50 Hz.",
    ),
    (
        10,
        'file = "run.csv"\nfilter = {cutoff = 5, channels = ["p"]}',
        11,
        "There is no channel (in log 'run') named 'p'. Valid: q, u.",
    ),
    (
        10,
        'file = "run.csv"\nshift = {p = 0.1}',
        11,
        "There is no channel (in log 'run') named 'p'. Valid: q, u.",
    ),
    (
        10,
        'file = "run.csv"\nshift = {u = 3.0}',
        12,
        "Channel 'u' of experiment 'run' covers 3 … 3.3 s, not the span 0 … 0.3 s: take a shorter span.",
    ),
    (10, 'file = "run.csv"\nscale = {q = 0}', 11, "The scale of 'q' is 0, which leaves nothing of it."),
    (
        10,
        'file = "run.csv"\nscale = {p = -1}',
        11,
        "There is no channel (in log 'run') named 'p'. Valid: q, u.",
    ),
    (
        10,
        'file = "run.csv"\nwithout = {q = [0.2, 0.1]}',
        11,
        "'q' is to be left out from 0.2 to 0.1 s: backwards.",
    ),
    (
        10,
        'file = "run.csv"\nwithout = {q = [[0.1, 0.2], [7, 8]]}',
        11,
        "Channel 'q' has no samples from 7 to 8 s; it runs from 0 to 0.3 s.",
    ),
    (
        10,
        'file = "run.csv"\ndespike = {channels = "q", window = 4}',
        11,
        "window= must be an odd number of samples from 3 on, not 4.",
    ),
    (10, 'file = "run.csv"\nterminal_weight = -1', 11, "'terminal_weight' must be a number ≥ 0, not -1."),
    (
        11,
        'inputs = {hing = "u"}',
        11,
        "There is no input named 'hing'. Did you mean hinge.torque? Valid: hinge.torque.",
    ),
    (11, 'inputs = {hinge = "v"}', 11, "There is no channel (in log 'run') named 'v'. Valid: q, u."),
    (11, "inputs = {hinge = [1]}", 11, "'hinge' must be the name of a channel or a number, not [1]."),
    (11, 'inputs = "u"', 11, "'inputs' must be a table, not 'u'."),
    (
        12,
        'measured = [{joint = "hing", channels = "q"}]',
        12,
        "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
    ),
    (
        12,
        'measured = [{joint = "hinge", channels = "qq"}]',
        12,
        "There is no channel (in log 'run') named 'qq'. Did you mean q? Valid: q, u.",
    ),
    (
        12,
        'measured = [{joint = "hinge", channels = "u"}]',
        12,
        "Channel 'u' is in N·m, but 'joint' is in rad: take another channel, or tell its unit in the file"
        " with the key 'units'.",
    ),
    (
        12,
        'measured = [{joint = "hinge", channels = ["q", "u"]}]',
        12,
        "'joint' here gives 1 value (rad), but 2 channels are named.",
    ),
    (
        12,
        'measured = [{channels = "q"}]',
        12,
        "A measurement needs one of joint, velocity, force, transmitted, position, frame_velocity, pose, reaction, "
        "output; here is none.",
    ),
    (12, 'measured = [{joint = "hinge"}]', 12, "'measured' needs the key 'channels'."),
    (12, "measured = []", 12, "'measured' is empty: name at least one sensor."),
    (
        12,
        'measured = [\n  {joint = "hinge", channels = "q"},\n  {position = "tip", channels = ["q", "q", "q"]},\n]',
        14,
        "There is no frame named 'tip'. Valid: world, base, rod.",
    ),
    (12, 'measured = [{joint = "hinge", channels = "q", std = 0}]', 12, "'std' must be a number > 0, not 0."),
    (
        12,
        'measured = [\n  {joint = "hinge", channels = "q", covariance = 1e-4},\n]',
        13,
        "'covariance' must be a list of lists of numbers, not 0.0001.",
    ),
    (
        12,
        'measured = [\n  {position = "rod", channels = ["q", "q", "q"], covariance = [[1, 0, 0], [0, 1]]},\n]\n'
        'units = {q = "m"}',
        13,
        "'covariance' must be a list of 3 numbers, not [0, 1].",
    ),
    (
        12,
        'measured = [{joint = "hinge", channels = "q", covariance = [[-1]]}]',
        12,
        "The covariance of q is not positive definite.",
    ),
    (
        12,
        'measured = [{joint = "hinge", channels = "q", std = 1, covariance = [[1]]}]',
        12,
        "The noise of q is given twice, as std and as covariance: give one of them.",
    ),
    (
        12,
        'measured = [{joint = "hinge", velocity = "hinge", channels = "q"}]',
        12,
        "A measurement needs one of joint, velocity, force, transmitted, position, frame_velocity, pose, reaction, "
        "output; here is joint and velocity.",
    ),
    (
        12,
        'measured = [{reaction = "loop", channels = "q"}]',
        12,
        "There is no loop, coupling or drive named 'loop'. Valid: (there are none).",
    ),
    (
        12,
        'measured = [{joints = "hinge", channels = "q"}]',
        12,
        "There is no key of 'measured' named 'joints'. Did you mean joint? Valid: joint, velocity, force,"
        " transmitted, position, frame_velocity, pose, reaction, output, channels, std, covariance.",
    ),
    (
        13,
        "start = {q = {hing = 0.1}}",
        13,
        "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
    ),
    (13, 'start = {q = {hinge = "p"}}', 13, "There is no channel (in log 'run') named 'p'. Valid: q, u."),
    (
        13,
        'start = {q = {hinge = "u"}}',
        13,
        "Channel 'u' is in N·m, but q of 'hinge' is in rad: take another channel, or tell its unit in the"
        " file with the key 'units'.",
    ),
    (
        13,
        'start = {q_std = "unknown"}',
        13,
        "'q_std' must be a number ≥ 0, 'known' or 'free', not 'unknown'.",
    ),
    (13, "start = {v_std = {hinge = -1}}", 13, "'hinge' must be a number ≥ 0, 'known' or 'free', not -1."),
    (
        13,
        "start = {position = {hinge = 1}}",
        13,
        "There is no key of 'start' named 'position'. Valid: q, v, q_std, v_std.",
    ),
    (
        13,
        'feedback = {channels = {hing = "q"}}',
        13,
        "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
    ),
    (
        13,
        'feedback = {channels = {hinge = "q"}, input_weight = 0}',
        13,
        "'input_weight' must be a number > 0, not 0.",
    ),
    (
        13,
        "feedback = {channels = {}}",
        13,
        "'channels' is empty: name a channel for each coordinate that is fed back.",
    ),
    (
        14,
        '[[log]]\nfile = "run.csv"\nmeasured = [{joint = "hinge", channels = "q"}]',
        14,
        "Two logs are called 'run': give each a name of its own with the key 'name'.",
    ),
    (
        15,
        "[parameter]",
        15,
        "There is no key of the study named 'parameter'. Did you mean parameters? Valid: model, "
        "actuators, delays, estimator, state_error_weight, method, segments, out, stepper, solver, log, "
        "parameters, … (17 in all).",
    ),
    (16, "", 15, 'No parameter is free: name at least one, "elbow.damping" = {start = 0.1}.'),
    (
        16,
        '"hinge.dampin" = 0.2',
        16,
        "There is no number with the address 'hinge.dampin'. Near matches: hinge.damping, "
        "hinge.cubic_damping, hinge.torque.gain, hinge.origin.z.",
    ),
    (16, '"hinge.damping" = "free"', 16, "'hinge.damping' must be a number, not 'free'."),
    (
        16,
        '"hinge.damping" = {start = -1, bounds = [0, 5]}',
        16,
        "The start of parameter 'hinge.damping' is -1 N·m·s/rad; with transform 'none' it must lie inside"
        " 0 … 5.",
    ),
    (
        16,
        '"hinge.damping" = {bounds = [5, 0]}',
        16,
        "The bounds of parameter 'hinge.damping' must be numbers with lower < upper, not (5.0, 0.0).",
    ),
    (16, '"hinge.damping" = {bounds = [0]}', 16, "'bounds' must be a list of 2 numbers, not [0]."),
    (
        16,
        '"hinge.damping" = {strat = 1}',
        16,
        "There is no key of 'hinge.damping' named 'strat'. Did you mean start? Valid: start, bounds, "
        "prior, transform, unit, ties.",
    ),
    (
        16,
        '"hinge.damping" = {transform = "log"}',
        16,
        "There is no transform named 'log'. Valid: none, positive, interval.",
    ),
    (
        16,
        '"hinge.damping" = {prior = [0.1, 0]}',
        16,
        "The prior of parameter 'hinge.damping' has std 0; it must be > 0.",
    ),
    (
        16,
        'c = {ties = ["hinge.damping", "rod.mass"]}',
        16,
        "Parameter 'c' would tie numbers of different units (N·m·s/rad, kg): give it a 'unit'.",
    ),
    (
        16,
        'c = {ties = ["hinge.damping", "rodd.mass"]}',
        16,
        "There is no number with the address 'rodd.mass'. Near matches: rod.mass, rod.com.z, rod.com.y, "
        "rod.com.x.",
    ),
    (16, 'c = {ties = {"hinge.damping" = 0}}', 16, "The factor of 'hinge.damping' in parameter 'c' is zero."),
    (16, 'inertia = ["rodd"]', 16, "There is no body named 'rodd'. Did you mean rod? Valid: base, rod."),
    (
        16,
        '"rod.mass" = {}\ninertia = ["rod"]',
        17,
        "Number 'rod.mass' would be moved twice: by parameter 'rod.mass' and by free_inertia('rod').",
    ),
    (
        16,
        '"hinge.damping" = 0.2\n[[limit]]\nfactors = {"hinge.dampin" = 1}\nupper = 2',
        18,
        "There is no parameter named 'hinge.dampin'. Did you mean hinge.damping? Valid: hinge.damping.",
    ),
    (
        16,
        '"hinge.damping" = 0.2\n[[limit]]\nfactors = {"hinge.damping" = 1}\nupper = 0.1',
        17,
        "The start violates the limit on hinge.damping: 0.2 is more than 0.1.",
    ),
    (
        16,
        '"hinge.damping" = 0.2\n[[limit]]\nfactors = {"hinge.damping" = 1}',
        17,
        "[[limit]] needs the key 'upper'.",
    ),
]
"""the line that is replaced, what stands there then, the line that is told, and the sentence"""


@pytest.mark.parametrize(("line", "text", "place", "sentence"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_told_with_its_line(line, text, place, sentence, folder, monkeypatch, capsys):
    lines = STUDY.splitlines()
    lines[line - 1] = text
    (folder / "study.toml").write_text("\n".join(lines) + "\n")
    where = f", line {place}" if place else ""
    assert told(monkeypatch, capsys, "study.toml") == (f"mechid: study.toml{where}: {sentence}\n", 2)
    assert {p.name for p in folder.iterdir()} == {"pendulum.urdf", "run.csv", "study.toml"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("stepper.dt=0", "--set stepper.dt=0: 'dt' must be a number > 0, not 0."),
        ("solver.kind=newton", "--set solver.kind=newton: There is no solver named 'newton'. Valid: "
                               "levenberg-marquardt, steepest-descent, lbfgsb."),
        ("steper.dt=1", f"--set steper.dt=1: There is no key of the study named 'steper'. Did you mean stepper or "
                        f"solver? {TOP}"),
        ("dt", "--set takes key=value with a key of the study, as in stepper.dt=0.001, not 'dt'."),
        ("log.file=no.csv", "--set log.file=no.csv: There is no file 'no.csv'."),
        ("log.3.file=a", "--set log.3.file=a: 'log' takes a number from 0 to 0 here, not '3'."),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_told_with_its_words(change, sentence, folder, monkeypatch, capsys):
    assert told(monkeypatch, capsys, "study.toml", "--set", change) == (f"mechid: {sentence}\n", 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stud.toml"], "There is no file 'stud.toml'. TOML files there: study.toml."),
        (["."], "'.' is a folder; a study is a TOML file. TOML files there: study.toml."),
        (
            ["study.toml", "--out", "run.csv/a"],
            "The folder 'run.csv/a' cannot be made: '{}/run.csv' is a file.",
        ),
        (["study.toml", "--out", "."], "Results need a folder of their own, not '.'."),
        (
            ["study.toml", "--resume"],
            "There is nothing to resume: no 'out/study-unfinished/checkpoint.json'. An interrupted fit leaves "
            "one, a converged fit does not.",
        ),
    ],
)
def test_files_that_are_not_there(arguments, sentence, folder, monkeypatch, capsys):
    assert told(monkeypatch, capsys, *arguments) == (f"mechid: {sentence.format(folder)}\n", 2)


def test_a_study_that_is_not_utf8(folder, monkeypatch, capsys):
    (folder / "study.toml").write_bytes(b'model = "\xff"')
    assert told(monkeypatch, capsys, "study.toml") == (
        "mechid: 'study.toml' is not UTF-8 text: byte 9 is not.\n",
        2,
    )


def test_a_covariance(folder):
    rows = "[[4e-4, 1e-4, 0], [1e-4, 9e-4, 0], [0, 0, 1e-4]]"
    text = STUDY.replace(
        'measured = [{joint = "hinge", channels = "q", std = 1e-3}]',
        f'measured = [{{position = "rod", channels = ["x", "y", "z"], covariance = {rows}}}]\n'
        'columns = {x = "q", y = "q", z = "q", q = "q", u = "u"}\nunits = {x = "m", y = "m", z = "m"}',
    )
    assert text != STUDY
    (folder / "study.toml").write_text(text)
    (experiment,) = read_study(folder / "study.toml").experiments
    (measured,) = experiment.measured
    np.testing.assert_allclose(measured.noise, [0.02, 0.03, 0.01])
    np.testing.assert_allclose(measured.covariance, [[4e-4, 1e-4, 0], [1e-4, 9e-4, 0], [0, 0, 1e-4]])


def test_channels_that_are_mended(folder):
    """Against the methods of a log, in the order that docs/fitting.md tells."""
    text = STUDY.replace(
        'file = "run.csv"',
        'file = "run.csv"\nscale = {q = -2}\nwithout = {q = [[0.05, 0.07], [0.2, 0.21]]}\n'
        'despike = {channels = "q", threshold = 4, window = 5}',
    )
    assert text != STUDY
    (folder / "study.toml").write_text(text)
    (experiment,) = read_study(folder / "study.toml").experiments
    plain = read_log(folder / "run.csv").scaled("q", -2.0).without("q", 0.05, 0.07).without("q", 0.2, 0.21)
    np.testing.assert_array_equal(
        experiment.log["q"].values, plain.despiked("q", threshold=4.0, window=5)["q"].values
    )
    assert np.isnan(experiment.log["q"].values).sum() >= 5


def test_gaps_that_are_filled(folder):
    """A short gap lies on the straight line between its neighbours, a longer one stays."""
    text = STUDY.replace(
        'file = "run.csv"', 'file = "run.csv"\nwithout = {q = [[0.05, 0.06], [0.1, 0.2]]}\nfill = {q = 0.05}'
    )
    (folder / "study.toml").write_text(text)
    (experiment,) = read_study(folder / "study.toml").experiments
    plain, found = read_log(folder / "run.csv")["q"], experiment.log["q"]
    short, long = ((plain.time >= a) & (plain.time <= b) for a, b in ((0.05, 0.06), (0.1, 0.2)))
    known = ~(short | long)
    line = np.interp(plain.time, plain.time[known], plain.values[known])
    assert short.any()
    np.testing.assert_allclose(found.values[short], line[short])
    np.testing.assert_array_equal(np.isnan(found.values), long)


def test_everything_that_a_study_can_say(folder):
    """Keys that the table of mistakes does not touch, against what they mean in Python."""
    (folder / "arms").mkdir()
    (folder / "arms" / "two.toml").write_text(
        """
        model = "../pendulum.urdf"
        stepper = {kind = "spook", dt = 0.005, compliance = 1e-9, relaxation_time = 0.02}
        solver.kind = "lbfgsb"
        solver.cost_tolerance = 1e-8

        [[log]]
        name = "first"
        file = "../run.csv"
        columns = {angle = "q", torque = "u"}
        units = {angle = "deg"}
        span = [0.1, 0.25]
        shift = {torque = -0.01}
        filter = [{cutoff = 20, channels = "torque", order = 2}]
        hold = "mean"
        terminal_weight = 1
        inputs = {"hinge.torque" = "torque"}
        start.q.hinge = "angle"
        start.v = {hinge = 0.5}
        start.v_std = {hinge = 0.1}
        feedback = {channels = {hinge = "angle"}, state_weight = [2.0], input_weight = 0.1}
        [[log.measured]]
        joint = "hinge"
        channels = ["angle"]
        [[log.measured]]
        force = "hinge"
        channels = ["torque"]
        std = [0.5]

        [[log]]
        file = "../run.csv"
        inputs = {hinge = 0.3}
        measured = {joint = ["hinge"], channels = "q"}

        [parameters]
        inertia = "rod"
        c = {ties = {"hinge.damping" = 2.0}, start = 0.3, bounds = [0, inf], transform = "positive"}
        "gravity.z" = {start = -9.8, prior = [-9.81, 0.01]}

        [[limit]]
        factors = {c = 1.0, "gravity.z" = 1.0}
        upper = 0.0
        """
    )
    study = read_study(folder / "arms" / "two.toml", ["limit.upper=1", "parameters.c.start=0.4", "out=there"])
    assert isinstance(study.stepper, Spook)
    assert (study.stepper.dt, study.stepper.compliance, study.stepper.relaxation_time) == (0.005, 1e-9, 0.02)
    assert study.solver == LBFGSB(cost_tolerance=1e-8)
    assert (str(study.out), study.name) == ("there", "two")
    first, second = study.experiments
    assert (first.name, second.name) == ("first", "run")
    # 0.21 deg at 0.1 s
    q, v = first.start.values(study.mechanism)
    np.testing.assert_allclose([*q, *v], [np.deg2rad(0.21), 0.5], rtol=1e-12)
    np.testing.assert_array_equal(first.start.stds(study.mechanism), [[0.0], [0.1]])
    assert first.log["torque"].time[0] == pytest.approx(-0.01)
    assert first.inputs == {"hinge.torque": "torque"}
    assert second.inputs == {"hinge.torque": 0.3}
    assert (first.span, first.hold, first.terminal_weight) == ((0.1, 0.25), "mean", 1.0)
    assert first.feedback.gain.state_weight == (2.0,)
    assert [m.channels for m in first.measured] == [("angle",), ("torque",)]
    names = study.free.names
    assert len(names) == 12
    assert names[-2:] == ("c", "gravity.z")
    damped = study.free.apply(study.free.theta0)
    assert next(e for e in damped.elements if e.name == "hinge").damping == pytest.approx(0.8)
    assert study.free.units[-2] == "N·m·s/rad"
    assert study.free.priors[1][-1] == 0.01
    assert study.free.limits == (({"c": 1.0, "gravity.z": 1.0}, 1.0),)


def test_a_delay_is_known_or_free(folder):
    study = read_study(folder / "study.toml", ["delays.hinge=0.02"])
    assert study.mechanism.delays == {"hinge.torque": 0.02}
    change = 'parameters."hinge.torque.delay"={start=0.003, bounds=[0, 0.1], prior=[0.0, 0.01]}'
    free = read_study(folder / "study.toml", ["delays.hinge=0.02", change]).free
    assert (free.names[-1], free.units[-1]) == ("hinge.torque.delay", "s")
    assert free.late_inputs == ("hinge.torque",)
    assert free.apply(free.theta0).delays == {"hinge.torque": 0.003}


def test_what_is_left_out_has_defaults(folder):
    study = read_study(folder / "study.toml")
    assert isinstance(study.stepper, Variational)
    assert (study.stepper.rule, study.stepper.forces) == ("midpoint", "balanced")
    assert str(study.out) == "out/study"
    assert study.solver.max_iterations == 20


TOML = '''# [not.a.table]
a = 1
"b.c" = "x = 3 # no comment"
d.e . 'f' = """
[g]
h = \\"""1\\"
"""   # quotes

[g]
i = [1, [2,
  3], {j = "]", k = {l = 1}},
  # m = 1
]
n = 'C:\\'

[[p.q]]
r = 1979-05-27 07:32:00
[[p.q]]
r = {}
[p.q.s]
t = 1
[[p.q.u]]
v = \'\'\'
it''s\'\'\'
[p.w]
'''


def test_lines_of_keys():
    lines = key_lines(TOML)
    assert lines[("a",)] == 2
    assert lines[("b.c",)] == 3
    assert lines[("d", "e", "f")] == 4
    assert lines[("g",)] == 9
    assert lines[("g", "i", 1, 1)] == 11
    assert lines[("g", "i", 2, "k", "l")] == 11
    assert lines[("g", "n")] == 14
    assert lines[("p",)] == lines[("p", "q", 0)] == 16
    assert lines[("p", "q", 1, "r")] == 19
    assert lines[("p", "q", 1, "s", "t")] == 21
    assert lines[("p", "q", 1, "u", 0, "v")] == 23
    assert lines[("p", "w")] == 25


def test_lines_name_every_entry_and_no_other():
    """The paths are those of the data that tomllib gives."""

    def paths(value, path=()):
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, held in inner:
            yield (*path, key)
            yield from paths(held, (*path, key))

    assert set(key_lines(TOML)) == set(paths(tomllib.loads(TOML)))
    assert key_lines(TOML.replace("\n", "\r\n")) == key_lines(TOML)
