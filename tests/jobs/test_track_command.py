"""`mechid track` as a user meets it: files, pipes, sockets, garbage, and a run that is killed and goes on."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mechid.cli import main
from mechid.jobs.lag import Derived, Lag
from mechid.studies.joint_friction_streams import TABLE, friction_stream

JOINT = Path(__file__).parent.parent.parent / "examples" / "joint" / "joint.toml"
QUICK = ["--set", "tracker.window=1000", "--set", "tracker.delay=100"]
COMMAND = [sys.executable, "-c", "from mechid.cli import main; main()", "track"]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    made = friction_stream(TABLE, 3.3, 0.05, (2.0, 100.0), 1.0, 0)
    rows = zip(made.time, made.samples, strict=True)
    return ["t,angle,speed,torque", *(f"{t:.3f},{x[0]:.9g},{x[1]:.9g},{x[2]:.9g}" for t, x in rows)]


@pytest.fixture(scope="module")
def stream(lines, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "stream.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def track(*arguments, config=JOINT):
    """Run the command in this process: exit code (0 if it returns) and what it says."""
    err = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["mechid", "track", str(config), *QUICK, *map(str, arguments)])
        patch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
        with pytest.raises(SystemExit) as stop:
            main()
    return SimpleNamespace(code=stop.value.code or 0, err=err.getvalue())


def written(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(stream, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "track.jsonl"
    done = track("--from", stream, "--out", out)
    assert done.code == 0, done.err
    return out


def test_estimates_events_and_an_end(whole):
    made = written(whole)
    kinds = [line["kind"] for line in made]
    assert kinds.count("estimate") == 33
    assert kinds[-1] == "end"
    events = [line for line in made if line["kind"] == "event"]
    assert [e["event"] for e in events] == ["started", "changed"]
    assert events[1]["time"] == pytest.approx(2.0, abs=0.05)
    assert not events[1]["mcs"]
    assert made[0]["mode"] == "starting"
    assert "values" not in made[0]
    for name in ("b_in", "b_inD", "C1", "C2"):
        assert made[-1]["values"][name] == pytest.approx(1.5 * TABLE[name], rel=0.1)
        assert 0.0 < made[-2]["std"][name] < 0.05 * TABLE[name]


def test_killed_and_resumed_it_writes_the_same(stream, whole, tmp_path):
    out = tmp_path / "track.jsonl"
    arguments = [*COMMAND, str(JOINT), *QUICK, "--from", str(stream), "--out", str(out)]
    often = ["--set", "output.save=0"]
    expected = whole.read_bytes()
    running = subprocess.Popen([*arguments, *often], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not (out.exists() and out.stat().st_size > 5000):
            assert time.monotonic() < end
            assert running.poll() is None
            time.sleep(0.001)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    part = out.read_bytes()
    assert len(part) < len(expected)
    done = track("--from", stream, "--out", out, *often, "--resume")
    assert done.code == 0, done.err
    assert "Resuming after" in done.err
    assert out.read_bytes() == expected
    # a log that has ended is gone on with too, when there is more of it; here there is not
    assert track("--from", stream, "--out", out, *often, "--resume").code == 0
    assert out.read_bytes() == expected


@pytest.mark.parametrize("again", [True, False])
def test_a_pipe_goes_on_or_begins_again(again, lines, whole, tmp_path):
    """The sender of a pipe may go on where it was, or send everything once more."""
    out = tmp_path / "track.jsonl"
    first, rest = lines[:1845], lines[1845:]

    def piped(sent: list[str], *more: str) -> None:
        read, write = os.pipe()
        with pytest.MonkeyPatch.context() as patch, os.fdopen(read) as source:
            patch.setattr(sys, "stdin", source)
            feeder = threading.Thread(target=_feed, args=(write, sent))
            feeder.start()
            done = track("--from", "-", "--out", out, *more)
            feeder.join()
        assert done.code == 0, done.err

    piped(first)
    piped(lines if again else rest, "--resume")
    assert out.read_bytes() == whole.read_bytes()


def _feed(handle: int, sent: list[str]) -> None:
    with os.fdopen(handle, "w") as sink:
        sink.write("\n".join(sent) + "\n")


@pytest.mark.parametrize("kind", ["tcp", "unix", "served"])
def test_sockets(kind, lines, whole, tmp_path):
    """Mechid waits for a sender, or reads from who serves."""
    out = tmp_path / "track.jsonl"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = f"unix:{tmp_path / 's'}" if kind == "unix" else f"tcp:{port}"
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    address = str(tmp_path / "s") if kind == "unix" else ("127.0.0.1", port)
    data = ("\n".join(lines) + "\n").encode()
    server = None
    if kind == "served":
        server = socket.create_server(("127.0.0.1", port))

    def send() -> None:
        if server is not None:
            client = server.accept()[0]
        else:
            client = socket.socket(family)
            for _ in range(2000):
                with contextlib.suppress(OSError):
                    client.connect(address)
                    break
                time.sleep(0.01)
        with client:
            client.sendall(data)

    sender = threading.Thread(target=send)
    sender.start()
    done = track("--from", where, "--out", out)
    sender.join()
    if server is not None:
        server.close()
    assert done.code == 0, done.err
    assert out.read_bytes() == whole.read_bytes()


def test_json_lines_through_a_pipe_to_the_standard_output(lines, whole):
    rows = [line.split(",") for line in lines[1:]]
    names = ("t", "angle", "speed", "torque")
    sent = "\n".join(json.dumps(dict(zip(names, map(float, row), strict=True))) for row in rows)
    done = subprocess.run(
        [*COMMAND, str(JOINT), *QUICK, "--quiet"], input=sent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [json.loads(line) for line in done.stdout.splitlines()] == written(whole)


def test_garbage_is_counted_and_does_no_harm(lines, whole, tmp_path):
    dirty = list(lines)
    bad = ["hello", "1,2", "nan,1,2,3", "\ufffd", "{}", "0.5,1,2,3", "1e400,1,2,3", "3.2,1,2,x", "[" * 2000]
    for i, text in enumerate(bad):
        dirty.insert(700 + 200 * i, text)
    data = "\n".join(dirty).encode().replace("\ufffd".encode(), b"\xff\x00\xfe")
    path, out = tmp_path / "dirty.csv", tmp_path / "track.jsonl"
    path.write_bytes(data + b"\n# a remark\n\n")
    done = track("--from", path, "--out", out)
    assert done.code == 0, done.err
    assert "Line 701 holds no sample: 1 cells instead of 4." in done.err
    assert "Further ones are only counted." in done.err
    clean, made = written(whole), written(out)
    assert made[-1]["garbage"] == len(bad)
    assert made[-1]["values"] == clean[-1]["values"]


@pytest.fixture(scope="module")
def unsteady(lines) -> list[str]:
    """The stream with two wrong stamps, whose clock begins anew at 1.5 s."""
    rows = [line.split(",") for line in lines]
    for row in rows[1501:]:
        row[0] = f"{float(row[0]) - 1.5:.3f}"
    rows[900][0], rows[2400][0] = "60000000", "-5"
    return [",".join(row) for row in rows]


def test_a_wrong_stamp_and_a_clock_that_begins_anew_end_nothing(unsteady, whole, tmp_path):
    path, out = tmp_path / "unsteady.csv", tmp_path / "track.jsonl"
    path.write_text("\n".join(unsteady))
    done = track("--from", path, "--out", out)
    assert done.code == 0, done.err
    assert "Line 901 holds no sample: time 6e+07 s lies far after the next line's, 0.9 s." in done.err
    assert done.err.count("the clock went back from 1.499 s to 0 s and goes on evenly") == 1
    clean, made = written(whole)[-1], written(out)
    assert made[-1]["garbage"] == 2
    assert made[-1]["samples"] == clean["samples"] - 2
    assert made[-1]["time"] == pytest.approx(clean["time"])
    assert made[-1]["values"] == pytest.approx(clean["values"], rel=0.01)
    events = [(line["event"], line["time"]) for line in made if line["kind"] == "event"]
    assert [kind for kind, _ in events] == ["started", "clock", "changed"]
    assert events[1][1] == pytest.approx(1.5)
    assert events[2][1] == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("until", [901, 1510])
def test_what_waits_for_further_lines_is_resumed(until, unsteady, tmp_path):
    """Ends of a log right behind a wrong stamp, and while it is not yet clear that the clock began anew."""
    path, at_once, out = tmp_path / "log.csv", tmp_path / "at_once.jsonl", tmp_path / "track.jsonl"
    text = "\n".join(unsteady) + "\n"
    path.write_text(text)
    assert track("--from", path, "--out", at_once).code == 0
    path.write_text("\n".join(unsteady[:until]) + "\n")
    assert track("--from", path, "--out", out).code == 0
    path.write_text(text)
    assert track("--from", path, "--out", out, "--resume").code == 0
    assert out.read_bytes() == at_once.read_bytes()


NAMES = ("t", "angle", "speed", "torque")


@pytest.mark.parametrize(
    ("first", "header", "garbage"),
    [
        (["Recorder 7, build 3", "robot;arm", "1,2,3,4", "{}"], "t,angle,speed,torque", 4),
        (['{"hello": 1}', '{"t": 0, "angle": 0.1}', "[]"], None, 3),
    ],
)
def test_what_stands_before_the_first_sample(first, header, garbage, lines, whole, tmp_path):
    path, out = tmp_path / "log", tmp_path / "track.jsonl"
    rows = lines[1:]
    if header is None:
        cells = [dict(zip(NAMES, map(float, row.split(",")), strict=True)) for row in rows]
        rows = [json.dumps(row) for row in cells]
    path.write_text("\n".join([*first, *([header] if header else []), *rows]))
    done = track("--from", path, "--out", out)
    assert done.code == 0, done.err
    made, clean = written(out)[-1], written(whole)[-1]
    assert made == clean | {"garbage": garbage}


@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "0.1,2,3,4",
            "no header with the columns expected, t, angle, speed, torque: name its columns under [stream] columns",
        ),
        ('{"t": 1}', "has all columns expected: t, angle, speed, torque."),
        (
            "hello",
            "hold no samples: a CSV header or JSON objects are expected with the columns t, angle, speed",
        ),
        ("", "The stream is empty: a CSV header or JSON objects are expected with the columns t, angle"),
        ("t,angle,speed,torque", "No line of the stream holds a sample: numbers are expected for t, angle"),
    ],
)
def test_a_stream_without_a_sample_is_one_sentence(line, count, told, tmp_path):
    path = tmp_path / "log"
    path.write_text("\n".join([line] * count))
    done = track("--from", path, "--out", tmp_path / "track.jsonl")
    assert done.code == 2
    assert told in done.err.replace("\n", " ")
    assert "Traceback" not in done.err


def test_missing_numbers_are_no_garbage(lines, tmp_path):
    holes = [line.rsplit(",", 1)[0] + "," if i % 50 == 7 else line for i, line in enumerate(lines)]
    path, out = tmp_path / "holes.csv", tmp_path / "track.jsonl"
    path.write_text("\n".join(holes))
    assert track("--from", path, "--out", out).code == 0
    end = written(out)[-1]
    assert end["garbage"] == 0
    assert end["values"]["b_inD"] == pytest.approx(60.0, rel=0.02)


def test_speeds_that_are_not_measured_are_derived(lines, tmp_path):
    path, out = tmp_path / "angle.csv", tmp_path / "track.jsonl"
    path.write_text("\n".join(",".join(line.split(",")[i] for i in (0, 1, 3)) for line in lines))
    config = tmp_path / "angle.toml"
    config.write_text(JOINT.read_text().replace('theta_in_rate = {column = "speed", unit = "rad/s"}', ""))
    done = track("--from", path, "--out", out, config=config)
    assert done.code == 0, done.err
    assert "theta_in_rate is the derivative of theta_in over 21 samples." in done.err
    assert "Estimates are 10 samples late by that." in done.err


def test_lag_gives_derivatives_of_polynomials_without_phase():
    lag = Lag(3, [Derived(1, 0, 1), Derived(2, 0, 2)], window=11, degree=3)
    given = [(t, np.array([2.0 + t - 3.0 * t**2 + t**3, np.nan, np.nan])) for t in 0.01 * np.arange(40)]
    came = [(t, lag.pass_through(t, x)) for t, x in given]
    assert [made is None for _, made in came] == [True] * 10 + [False] * 30
    for now, made in came[10:]:
        t, x = made
        assert t == pytest.approx(now - 0.05)
        assert x == pytest.approx([2 + t - 3 * t**2 + t**3, 1 - 6 * t + 3 * t**2, -6 + 6 * t], abs=1e-9)
    assert lag.pass_through(0.6, given[0][1])[1][1:] == pytest.approx([np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("form.kind=gear", "There is no kind of form named 'gear'. Valid: friction, joint, mechanism."),
        ("form.J_in=1", "A friction form has no key 'J_in'; valid: kind, delta_S."),
        ("bounds.omega_1=[1, 0.1]", "The bounds of omega_1 must be two numbers, the lower first"),
        ("bounds.omega_2=[0, 1]", "There is no key of [bounds] named 'omega_2'."),
        ("channels.speed=v", "There is no channel named 'speed'."),
        ("channels.theta_in=v", "There is no column of the stream named 'v'."),
        ("channels.theta_in.unit=parsec", "parsec"),
        (
            "channels.theta_in_rate.unit=m/s",
            "'theta_in_rate' is in rad/s, which m/s cannot be converted into.",
        ),
        ("bounds.omega_1=[-1, 1]", "The bounds of omega_1 must be > 0, not [-1, 1]."),
        ("bounds.omega_S=[0, 1]", "The bounds of omega_S must be > 0, not [0, 1]."),
        ("tracker.window=1", "'window' must be a whole number ≥ 10, not 1."),
        ("tracker.noise.T_d_in=0", "'T_d_in' must be a number > 0, not 0."),
        ("tracker.memory=0.1", "memory of Forgetting must be a number ≥ 1, not 0.1."),
        ("tracker.delay=soon", "'delay' must be a whole number ≥ 0, not 'soon'."),
        ("derivatives.window=20", "'window' must be an odd number of samples, not 20."),
        ("stream.rate=1000", "Give the time's column or the rate, not both."),
        ("parameters.x=1", "[parameters] belongs to a mechanism, not to a friction form."),
    ],
)
def test_wrong_settings_are_one_sentence(change, told, stream, tmp_path):
    done = track("--from", stream, "--out", tmp_path / "o.jsonl", "--set", change)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--from", "nowhere.csv"], "There is no file 'nowhere.csv'."),
        (["--from", "tcp:far.org:80"], "Samples are taken from this machine only"),
        (["--from", "tcp:none"], "tcp:PORT takes a number from 1 to 65535, not 'none'."),
        (["--from", "nowhere.csv", "--resume"], "--resume needs --out or --state"),
    ],
)
def test_wrong_places_are_one_sentence(arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = track(*arguments)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize("option", ["--out", "--state"])
@pytest.mark.parametrize("target", ["log.csv", "joint.toml", "link", "log-before.csv"])
def test_nothing_is_written_where_something_is_read(option, target, lines, tmp_path):
    log, config, link = tmp_path / "log.csv", tmp_path / "joint.toml", tmp_path / "link"
    source = tmp_path / "log-before.csv" if target == "log-before.csv" else log
    source.write_text("\n".join(lines[:50]))
    config.write_text(JOINT.read_text())
    link.hardlink_to(source)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    # what an earlier run wrote into log.csv would be kept as log-before.csv
    where = log if source != log else tmp_path / target
    done = track("--from", source, option, where, config=config)
    assert done.code == 2
    what = "the study file" if target == "joint.toml" else "the samples"
    assert f"the file of {what}: choose another one" in done.err
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_nothing_is_written_over_the_standard_input(lines, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("\n".join(lines[:50]))
    with log.open() as source:
        command = [*COMMAND, str(JOINT), "--out", str(log)]
        done = subprocess.run(command, stdin=source, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "is the file of the samples" in done.stderr
    assert log.read_text() == "\n".join(lines[:50])


def test_output_and_state_are_two_files(stream, tmp_path):
    done = track("--from", stream, "--out", tmp_path / "o", "--state", tmp_path / "o")
    assert done.code == 2
    assert "choose two files" in done.err


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_output_of_an_earlier_run_is_kept(more, stream, whole, tmp_path):
    """Without --resume, and with it where there is no state to go on from."""
    out = tmp_path / "track.jsonl"
    out.write_text("precious\n")
    done = track("--from", stream, "--out", out, *more)
    assert done.code == 0, done.err
    assert f"The output of an earlier run is kept as {tmp_path / 'track-before.jsonl'}." in done.err
    assert (tmp_path / "track-before.jsonl").read_text() == "precious\n"
    assert out.read_bytes() == whole.read_bytes()


def test_a_state_of_other_settings_is_refused(stream, whole, tmp_path):
    out = tmp_path / "track.jsonl"
    assert track("--from", stream, "--out", out).code == 0
    done = track("--from", stream, "--out", out, "--resume", "--set", "tracker.memory=500")
    assert done.code == 2
    assert "was saved under other settings" in done.err


def test_units_of_a_mechanism_s_coordinates(stream, tmp_path):
    (tmp_path / "rod.xml").write_text(
        '<mujoco><worldbody><body name="rod"><joint name="slide" type="slide" axis="1 0 0"/><inertial pos="0 0 0" '
        'mass="1" diaginertia="1 1 1"/></body></worldbody><actuator><motor name="drive" joint="slide"/></actuator>'
        "</mujoco>"
    )
    config = tmp_path / "rod.toml"
    config.write_text(
        '[form]\nkind = "mechanism"\nmodel = "rod.xml"\n[parameters]\n"rod.mass" = {}\n'
        '[channels]\n"slide rate" = {column = "speed", unit = "deg/s"}\ndrive = {column = "torque", unit = "mA"}\n'
    )
    done = track("--from", stream, config=config)
    assert done.code == 2
    assert "'slide rate' is in m/s, which deg/s cannot be converted into." in done.err


def test_a_mechanism_is_tracked_from_its_angle_and_torque(tmp_path):
    """Damping of a pendulum doubles; rates and accelerations are derived, whose errors are more than noise."""
    rng = np.random.default_rng(0)
    q, v, rows, dt = 0.3, 0.0, ["t,q,tau"], 1e-3
    for i in range(12000):
        t = i * dt
        tau = 0.5 * np.sin(3.0 * t) + 0.4 * np.sin(7.3 * t)
        b = 0.05 if t < 6.0 else 0.1
        rows.append(f"{t:.4f},{q + 1e-6 * rng.normal():.9f},{tau:.9f}")
        for _ in range(4):
            v += 0.25 * dt * (tau - b * v - 9.81 * 0.25 * np.sin(q)) / (0.02 + 0.0625)
            q += 0.25 * dt * v
    (tmp_path / "log.csv").write_text("\n".join(rows))
    (tmp_path / "rod.xml").write_text(
        '<mujoco><option gravity="0 0 -9.81"/><worldbody><body name="rod"><joint name="hinge" axis="0 1 0" '
        'damping="0.02"/><inertial pos="0 0 -0.25" mass="1" diaginertia="0.02 0.02 0.001"/></body></worldbody>'
        '<actuator><motor name="drive" joint="hinge"/></actuator></mujoco>'
    )
    (tmp_path / "rod.toml").write_text(
        '[form]\nkind = "mechanism"\nmodel = "rod.xml"\n[parameters]\n"hinge.damping" = {start = 0.01}\n'
        '[channels]\n"hinge position" = "q"\ndrive = "tau"\n'
        "[derivatives]\nwindow = 41\n[tracker]\nwindow = 3000\nleast = 500\nthreshold = 4\nalarm = 20\n"
    )
    out = tmp_path / "track.jsonl"
    done = track("--from", tmp_path / "log.csv", "--out", out, config=tmp_path / "rod.toml")
    assert done.code == 0, done.err
    made = written(out)
    events = [line for line in made if line["kind"] == "event"]
    assert [e["event"] for e in events] == ["started", "changed"]
    assert events[1]["time"] == pytest.approx(6.0, abs=0.3)
    assert made[-1]["values"]["hinge.damping"] == pytest.approx(0.1, rel=0.03)
