"""Files of logs: text of many kinds, arrays, MATLAB, real recordings; what is written is read back as it was."""

import contextlib
import os
import random

import numpy as np
import pytest
from scipy.io import savemat

from mechid.data import read_text
from mechid.data.inspect import timing
from mechid.data.log import Log, log_of, read_log
from mechid.data.read_text import NOT_SAMPLED
from mechid.data.writing import write_log
from mechid.errors import MechidError

PLAIN = "t,q,u\n0,1,2\n0.5,3,4\n1,5,6\n"


@pytest.fixture
def text(tmp_path):
    """Reads a text as a log."""

    def read(content: str | bytes, **options) -> Log:
        path = tmp_path / "log.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_log(path, **options)

    return read


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.rstrip("\n"),
        "\ufeff" + PLAIN,
        PLAIN.encode("utf-16"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", ";").replace("0.5", "0,5"),
        PLAIN.replace(",", "\t").replace("0.5", "0,5"),
        PLAIN.replace(",", "  "),
        PLAIN.replace(",", " , "),
        PLAIN.replace("\n", ",\n"),
        PLAIN.replace("\n", ",\n").replace("u,", "u"),
        "# a comment\n\n" + PLAIN,
        PLAIN.replace("0.5", "# paused\n0.5"),
        PLAIN.replace("3,4", "3,4  # here"),
        PLAIN.replace("\n0.5", "\n\n \n0.5"),
        '"t","q","u"\n"0","1","2"\n"0.5","3","4"\n"1","5","6"\n',
        "# t,q,u\n0,1,2\n0.5,3,4\n1,5,6\n",
        "Time [s],q,u\n0,1,2\n0.5,3,4\n1,5,6\n",
        "time_ms,q,u\n0,1,2\n500,3,4\n1000,5,6\n",
        "q,TIMESTAMP [us],u\n1,0,2\n3,500000,4\n5,1000000,6\n",
        "clock [ms],q,u\n0,1,2\n500,3,4\n1000,5,6\n",
        "t,q,u\ns,,\n0,1,2\n0.5,3,4\n1,5,6\n",
        "t,q,u,mode\n0,1,2,idle\n0.5,3,4,run\n1,5,6,run\n",
        PLAIN + "1.5,7",
    ],
)
def test_texts_of_many_kinds_hold_the_same_log(text, content):
    log = text(content)
    assert log.name == "log"
    assert log.names[:2] == ("q", "u")
    assert set(log.names) <= {"q", "u"}
    assert log["q"].time.tolist() == [0.0, 0.5, 1.0]
    assert log["q"].values.tolist() == [1.0, 3.0, 5.0]
    assert log["u"].values.tolist() == [2.0, 4.0, 6.0]


def test_units_of_headers_are_converted(text):
    for content in (
        "t [s],q1 [deg],torque (mNm)\n0,180,1000\n1,90,0\n",
        "t,q1,torque\n[s],[°],mN*m\n0,180,1000\n1,90,0\n",
        "t [s]   q1 [deg]   torque (mNm)\n0 180 1000\n1 90 0\n",
        "t [s],q1 [°],torque (mNm)\n0,180,1000\n1,90,0\n".encode("cp1252"),
    ):
        log = text(content)
        assert log["q1"].values == pytest.approx([np.pi, np.pi / 2])
        assert log["torque"].values == pytest.approx([1.0, 0.0])
        assert (log["q1"].unit, log["torque"].unit) == ("rad", "N·m")
    assert "Channel 'torque' is converted from mNm to N·m." in log.notes


def test_given_units_and_names_go_before_those_of_the_file(text):
    content = "stamp,q1 [deg],I\n0,180,1\n1e9,90,2\n"
    log = text(
        content,
        columns={"angle": "q1", "current": "I"},
        units={"angle": "rad", "current": "mA"},
        time_unit="ns",
        name="mine",
    )
    assert log.name == "mine"
    assert log.names == ("angle", "current")
    assert log["angle"].values.tolist() == [180.0, 90.0]
    assert log["current"].values == pytest.approx([1e-3, 2e-3])
    assert log.end == pytest.approx(1.0)


def test_without_a_header_columns_are_numbered(text):
    log = text("0 1 2\n1 3 4\n", time="c0")
    assert log.names == ("c1", "c2")
    even = text("0 1 2\n1 3 4\n", rate=100.0)
    assert even.names == ("c0", "c1", "c2")
    assert even["c2"].time.tolist() == [0.0, 0.01]


@pytest.mark.parametrize("word", ["", "nan", "NaN", "null", " ", "NA"])
def test_missing_cells_are_missing_samples(text, word):
    log = text(f"t,q,u\n0,{word},1\n1,2,{word}\n2,{word},{word}\n3,4,5\n")
    assert log["q"].missing.tolist() == [True, False, True, False]
    assert log["u"].missing.tolist() == [False, True, True, False]
    assert log["u"].values[3] == 5.0


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (
            "t,q\n0,1\n1,2\n1,2\n2,3\n",
            "1 of 4 rows stand twice in the file, with the same time, and count once.",
        ),
        ("t,q\n0,1\n1,inf\n2,3\n", "Column 'q': 1 infinite value taken as missing."),
        ("t,q,s\n0,1,a\n1,2,b\n2,3,b\n", "'s' holds text ('a' in line 2) and is left out."),
        ("t,q\n0,1\n1,2\n2,3\n3", "The last line 5 has 1 cell for 2 columns: it is cut off and left out."),
        (
            "t,q [foo]\n0,1\n1,2\n2,3\n",
            "Column 'q [foo]': 'foo' is no unit that is known, so its values are kept as they are.",
        ),
        ("t,q,\n0,1,7\n1,2,8\n2,3,9\n", "A column without a name is called 'c2'."),
        (b"t,q,\xb5\n0,1,2\n1,2,3\n2,3,3\n", "The file is not UTF-8; it is read as Windows text (cp1252)."),
        (
            "t,q\n1700000000.0,1\n1700000000.1,2\n1700000000.2,3\n",
            "Times near 1.7e+09 s are resolved to 2.4e-07 s, 2.4e-06 of a step;"
            " times that begin near 0 would be finer.",
        ),
    ],
)
def test_what_is_noticed_is_noted(text, content, note):
    log = text(content)
    assert log.notes == (note,)
    assert len(log[log.names[0]]) == 3


def test_numbers_are_not_read_cell_by_cell(text, monkeypatch):
    """Long recordings are read at the speed of NumPy, with gaps and decimal commas too."""
    monkeypatch.setattr(read_text, "_cell_by_cell", None)
    for content in (
        PLAIN,
        PLAIN.replace("3", ""),
        PLAIN.replace("6", ""),
        PLAIN.replace("3,4", ","),
        PLAIN.replace(",", ";").replace("0.5", "0,5"),
        "# a\n" + PLAIN.replace("0.5", "# b\n0.5"),
        f"{NOT_SAMPLED}\n{PLAIN.replace('3', '')}",
    ):
        assert text(content)["u"].time[-1] == 1.0


# Arrays


def test_arrays_of_numpy(tmp_path):
    t = np.arange(5) * 1_000_000
    arrays = {"time": t, "q": np.arange(10.0).reshape(5, 2), "n": np.arange(3), "word": np.array("x")}
    np.savez(tmp_path / "a.npz", **arrays, **{"v [deg/s]": np.full(5, 180.0)})
    log = read_log(tmp_path / "a.npz", time_unit="us")
    assert log.names == ("q[0]", "q[1]", "v")
    assert log["q[1]"].values.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert log["v"].values == pytest.approx(np.full(5, np.pi))
    assert log.duration == pytest.approx(4.0)
    assert log.notes[:2] == (
        "'word' is no array of numbers and is left out.",
        "'n' has shape (3,) for 5 times in 'time' and is left out.",
    )


def test_variables_of_matlab(tmp_path):
    t = np.arange(6) / 10.0
    variables = {
        "t": t[:, None],
        "q": np.vstack([t, 2 * t, 3 * t]),
        "tau": t[None, :] ** 2,
        "note": "text",
        "k": 3.0,
    }
    savemat(tmp_path / "m.mat", variables)
    log = read_log(tmp_path / "m.mat")
    assert log.names == ("q[0]", "q[1]", "q[2]", "tau")
    assert log["q[2]"].values == pytest.approx(3 * t)
    assert log["tau"].values == pytest.approx(t**2)


def test_structs_of_matlab_have_times_of_their_own(tmp_path):
    fast, slow = np.arange(100) / 100.0, np.arange(10) / 10.0
    arm = {"time": fast, "signals": {"values": np.stack([fast, -fast], 1)}}
    savemat(tmp_path / "m.mat", {"arm": arm, "force": {"t": slow, "z": slow**2}})
    log = read_log(tmp_path / "m.mat")
    assert set(log.names) == {"arm.signals.values[0]", "arm.signals.values[1]", "force.z"}
    assert timing(log["arm.signals.values[1]"]).rate == pytest.approx(100.0)
    assert timing(log["force.z"]).rate == pytest.approx(10.0)
    assert read_log(tmp_path / "m.mat", columns={"z": "force.z"}).names == ("z",)


# Round trips


def logs() -> list[Log]:
    rng = np.random.default_rng(2)
    t = np.cumsum(rng.uniform(0.1, 1.0, 50)) / 3.0
    holed = np.where(rng.uniform(size=50) < 0.3, np.nan, rng.normal(size=50))
    one = log_of(t, {"q": rng.normal(size=50) * 1e-7, "holed": holed}, units={"q": "rad", "holed": "N·m"})
    odd = {"q[0]": t, "x [deg]": t, 'say "x", y': t, "file": t, "a/b": t, "ω.dot": t, "T": t, "7": t}
    multi = one.with_channel("slow", t[::7], holed[::7], "m/s²").with_channel("late", [99.0], [1.0])
    return [one, log_of(t, odd, units={"q[0]": "rad"}), multi, log_of([1.7e9], {"q": [0.1]})]


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@pytest.mark.parametrize("log", logs(), ids=["shared", "names", "rates", "single"])
def test_what_is_written_is_read_back_as_it_was(log, suffix, tmp_path):
    path = tmp_path / f"written{suffix}"
    write_log(log, path)
    again = read_log(path)
    assert again.names == log.names
    for name in log:
        assert np.array_equal(again[name].time, log[name].time)
        assert np.array_equal(again[name].values, log[name].values, equal_nan=True)
        assert again[name].unit == log[name].unit
    assert os.listdir(tmp_path) == [path.name]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text(PLAIN)

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(MechidError, match="cannot be written: No space left on device"):
        write_log(logs()[0], path)
    assert path.read_text() == PLAIN
    assert os.listdir(tmp_path) == ["log.csv"]


# Real recordings


@pytest.mark.parametrize(
    ("pattern", "options", "rates", "channel", "largest"),
    [
        ("qube_furuta/*.csv", {}, (250.0, 250.0), "theta", 2.0),
        ("dfki_simple_pendulum/*.csv", {}, (199.0, 500.0), "torque", 5.0),
        ("kuka_kr300/*.csv", {}, (249.9, 250.1), "q_motor_1", 1.0),
        ("staubli_tx40/*_data.csv", {"rate": 5000.0}, (5000.0, 5000.0), "Joint_1", 70.0),
    ],
)
def test_real_recordings_are_read(reference, pattern, options, rates, channel, largest):
    paths = sorted((reference / "data").glob(pattern))
    assert paths
    for path in paths:
        log = read_log(path, **options)
        found = timing(log[channel])
        assert rates[0] - 1e-6 <= found.rate <= rates[1] + 1e-6
        assert found.jitter < 0.01
        assert found.uniform
        assert found.gaps == ()
        assert 0.0 < np.abs(log[channel].values).max() < largest
        assert not log.notes


def test_a_real_velocity_is_the_derivative_of_the_angle(reference):
    """Measured velocities of a pendulum against its differentiated angle: no phase, right units."""
    log = read_log(reference / "data/dfki_simple_pendulum/energy_shaping.csv")
    made = log.derivative("position", window=0.1)["position_rate"].values
    measured = log.filtered("velocity", cutoff=10.0)["velocity"].values
    assert np.corrcoef(made, measured)[0, 1] > 0.999
    assert np.std(made) == pytest.approx(np.std(measured), rel=0.05)


# Anything at all


def _mutated(source: random.Random, base: str) -> bytes:
    data = bytearray(base.encode())
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(5)
        if kind == 0:
            data[at:at] = source.choice(
                [b",", b";", b"\t", b'"', b"#", b"\n", b" ", b"[", b"deg", b"\r", b"\xb0"]
            )
        elif kind == 1:
            del data[at : at + source.randint(1, 9)]
        elif kind == 2:
            data[at:at] = source.choice(
                [b"nan", b"-inf", b"1e999", b"1e308", b"9" * 400, b"x", b"\0", b"\xff\xfe"]
            )
        elif kind == 3:
            start = source.randrange(len(data) + 1)
            data[at:at] = data[start : start + source.randint(1, 30)]
        elif at < len(data):
            data[at] = source.randrange(256)
        data = data or bytearray(b",")
    return bytes(data)


def test_broken_texts_are_read_or_refused_in_a_sentence(text):
    source = random.Random(11)
    bases = [
        PLAIN,
        "# c\nt [ms];q [deg];m\n0,5;1;a\n1,5;;b\n",
        "t q [rad]\n0 1\n1 2\n",
        f"{NOT_SAMPLED}\nt [s],q [rad],u []\n0,,1\n1,2,\n",
    ]
    refused = []
    for _ in range(800):
        try:
            repr(text(_mutated(source, source.choice(bases))))
        except MechidError as error:
            refused.append(str(error))
    assert 100 < len(refused) < 700
    assert [r for r in refused if "\n" in r or not r.endswith(".")] == []


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_broken_arrays_are_read_or_refused_in_a_sentence(tmp_path, suffix):
    """MATLAB's are cut off only: SciPy does not survive every changed byte."""
    source = random.Random(12)
    path = tmp_path / f"log{suffix}"
    arrays = {"t": np.arange(5.0), "q": np.arange(10.0).reshape(5, 2)}
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        savemat(path, {**arrays, "s": {"a": np.arange(5.0)}})
    whole = path.read_bytes()
    for _ in range(150):
        data = bytearray(whole)
        if suffix == ".npz":
            data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(data[: source.randrange(len(data))] if source.random() < 0.5 else data)
        with contextlib.suppress(MechidError):
            repr(read_log(path))
