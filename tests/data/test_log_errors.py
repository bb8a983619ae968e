"""What can be got wrong with logs, and the sentence that says so."""

import struct

import numpy as np
import pytest
from scipy.io import savemat

from mechid.data.log import Channel, Log, log_of, read_log
from mechid.data.units import known_units, to_si
from mechid.data.writing import write_log
from mechid.errors import MechidError

T = np.arange(101) / 100.0
LOG = log_of(T, {"q": T, "u": 2 * T}, units={"q": "rad"}, name="run")
HOLED = LOG.without("q", 0.0, 0.99)
UNEVEN = log_of(T[:100] + 1e-3 * (np.arange(100) % 2), {"q": np.zeros(100)})


def read(content, name="log.csv", **options):
    with open(name, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return read_log(name, **options)


def npz(**arrays):
    np.savez("log.npz", **arrays)
    return read_log("log.npz")


def mat(**arrays):
    savemat("log.mat", arrays)
    return read_log("log.mat")


SIGNALS = [
    (lambda: LOG["p"], "There is no channel (in log 'run') named 'p'. Valid: q, u."),
    (lambda: LOG.selected(), "Log 'run' has no channels."),
    (lambda: LOG.renamed({"u": "q"}), "There would be two channels 'u'."),
    (lambda: LOG.renamed({"a": "q", "b": "q"}), "Channel 'q' is renamed twice, to 'a' and 'b'."),
    (lambda: LOG.between(2, 3), "Log 'run' has no samples from 2 to 3 s; it runs from 0 to 1 s."),
    (lambda: LOG.between("a"), "start= must be numbers, not 'a'."),
    (lambda: LOG.shifted(np.inf), "seconds= must be finite, not inf."),
    (
        lambda: LOG.scaled("q", 1e50).scaled("q", 1e50),
        "Channel 'q' is 1e+98 at 0.01 s; values must be at most 1e+50 in size, and NaN where they are"
        " missing.",
    ),
    (lambda: LOG.without("q", 2, 3), "Channel 'q' has no samples from 2 to 3 s; it runs from 0 to 1 s."),
    (lambda: LOG.wrapped(), "wrapped takes the names of the channels that are angles."),
    (
        lambda: LOG.unwrapped("q", period=0.0),
        "period= must be a positive number of the channel's unit, not 0.0.",
    ),
    (lambda: LOG.filtered(cutoff=50), "Channel 'q': a cutoff of 50 Hz is not below half the rate, 50 Hz."),
    (
        lambda: LOG.filtered(cutoff=1e-4),
        "Channel 'q': a cutoff of 0.0001 Hz is below 1e-05 of the rate, 100 Hz; resample it first.",
    ),
    (
        lambda: log_of([0.0], {"q": [1.0]}).filtered(cutoff=1),
        "Channel 'q' has no run of 16 samples without a gap, which this needs; filled closes short gaps.",
    ),
    (lambda: LOG.filtered(cutoff=-1), "cutoff= must be a positive number of Hz, not -1."),
    (
        lambda: LOG.filtered(cutoff=5, order=0),
        "order= of a low-pass must be a whole number from 1 to 10, not 0.",
    ),
    (
        lambda: UNEVEN.filtered(cutoff=5),
        "Channel 'q' is not sampled evenly (steps differ by more than 5 %, from 0.009 to 0.011 s);"
        " resample it first, with resampled(rate=99.9).",
    ),
    (
        lambda: HOLED.filtered("q", cutoff=5),
        "Channel 'q' has no run of 16 samples without a gap, which this needs; filled closes short gaps.",
    ),
    (
        lambda: HOLED.derivative("q"),
        "Channel 'q' has no run of 3 samples without a gap, which this needs; filled closes short gaps.",
    ),
    (
        lambda: LOG.derivative("q", cutoff=5, window=1),
        "Either cutoff= or window= says how a derivative is smoothed, not both.",
    ),
    (lambda: LOG.derivative("q", order=2), "order= goes with cutoff= or window=."),
    (
        lambda: LOG.derivative("q", window=0.02),
        "Channel 'q': a window of 0.02 s holds 3 samples; degree 3 needs 4 at least, 0.04 s.",
    ),
    (
        lambda: LOG.derivative("q", window=0.2, order=11),
        "order= of the polynomial must be a whole number from 1 to 10, not 11.",
    ),
    (lambda: LOG.resampled(), "resampled takes either rate= or times=."),
    (
        lambda: LOG.resampled(rate=10, method="spline"),
        "There is no method named 'spline'. Did you mean linear? Valid: linear, cubic, hold, mean.",
    ),
    (lambda: LOG.resampled(rate="fast"), "rate= must be a positive number of Hz, not 'fast'."),
    (
        lambda: LOG.resampled(rate=1e300),
        "Resampling from 0 to 1 s at 1e+300 Hz gives more than 1e+08 times.",
    ),
    (lambda: LOG.resampled(times=[1, 0]), "times= must be increasing times of shape (n,), in s."),
    (lambda: LOG.resampled(rate=10, longest_gap=0), "longest_gap= must be a positive number of s, not 0."),
    (lambda: LOG.filled(longest_gap=-1), "longest_gap= must be a positive number of s, not -1."),
    (
        lambda: LOG.despiked(threshold=0),
        "threshold= must be a positive number of standard deviations, not 0.",
    ),
    (lambda: LOG.despiked(window=4), "window= must be an odd number of samples from 3 on, not 4."),
    (lambda: LOG.without("q", 0, 1).without_missing(), "Channel 'q' has no samples that are not missing."),
]

ARRAYS = [
    (lambda: log_of(T, {}), "Log 'log' has no channels."),
    (lambda: log_of(T, {"q": T[1:]}), "Channel 'q' has values of shape (100,) for 101 times."),
    (
        lambda: log_of(T[::-1], {"q": T}),
        "Channel 'q' has times that do not increase: 1 s, then 0.99 s at 1.",
    ),
    (
        lambda: log_of([0, np.nan], {"q": [1, 2]}),
        "Channel 'q' has the time nan at 1; times must be finite numbers.",
    ),
    (lambda: log_of([], {"q": []}), "Channel 'q' needs times of shape (n,), at least one, not shape (0,)."),
    (lambda: log_of([0], {"q": ["a"]}), "The values of channel 'q' must be numbers, not ['a']."),
    (
        lambda: log_of([0], {" q": [1]}),
        "A channel's name must be printable text without spaces around it, not ' q'.",
    ),
    (
        lambda: log_of([0], {"q": [np.inf]}),
        "Channel 'q' is inf at 0 s; values must be at most 1e+50 in size, and NaN where they are missing.",
    ),
    (
        lambda: log_of([0], {"q": [1]}, units={"p": "deg"}),
        "There is no channel (in units) named 'p'. Valid: q.",
    ),
    (
        lambda: Channel(T, T, "deg"),
        "A channel's unit must be SI, not 'deg'; log_of converts, and scaled does.",
    ),
    (
        lambda: log_of([0], {"q": [1]}, units={"q": "parsec"}),
        f"Channel 'q': 'parsec' is no unit that is known; valid: {', '.join(known_units())}.",
    ),
    (lambda: Log("empty", {}), "Log 'empty' has no channels."),
    (lambda: to_si("parsec"), f"'parsec' is no unit that is known; valid: {', '.join(known_units())}."),
]

FILES = [
    (lambda: read_log(3), "A file's name is needed, not 3."),
    (lambda: read_log("no.csv"), "There is no file 'no.csv'."),
    (lambda: read_log("."), "'.' is a folder, not a log."),
    (lambda: read(""), "'log.csv' has no rows."),
    (lambda: read("# only\n# words\n"), "'log.csv' has no rows."),
    (lambda: read("t,q\n"), "'log.csv' has no rows, only line 1, which holds no numbers."),
    (
        lambda: read(b"\x89HDF\0\0"),
        "'log.csv' is not text; logs are read from text (CSV), from NumPy's .npz and from MATLAB's .mat.",
    ),
    (
        lambda: read("a,b\n0,1\n1,2\n"),
        "'log.csv' has no column of time; name it with time= or give rate= in Hz. Its columns: a, b.",
    ),
    (lambda: read("a,b\n0,1\n", time="c"), "There is no column (in 'log.csv') named 'c'. Valid: a, b."),
    (
        lambda: read("time,b\nnoon,1\none,2\n"),
        "'log.csv' has no column of time ('time' holds text ('noon' in line 2)); name it with time= or"
        " give rate= in Hz. Its columns: b.",
    ),
    (
        lambda: read("time,b\nnoon,1\none,2\n", time="time"),
        "'log.csv': the column of time, 'time', holds text ('noon' in line 2).",
    ),
    (lambda: read("t\n0\n1\n"), "'log.csv' has no channels besides time; it has t."),
    (
        lambda: read("t,q\n0,1\n", time="t", rate=1),
        "Either time= names the column of time or rate= gives one, not both.",
    ),
    (lambda: read("t,q\n0,1\n", rate=0), "rate= must be a positive number of Hz, not 0."),
    (
        lambda: read("t,q\n0,1\n", time_unit="m"),
        "time_unit is in 'm', which is no unit of time; valid: s, ms, us, ns, min, h.",
    ),
    (
        lambda: read("q [m],u\n0,1\n", time="q"),
        "'log.csv': column 'q' is in 'm', which is no unit of time; valid: s, ms, us, ns, min, h.",
    ),
    (lambda: read("t,q,q\n0,1,2\n"), "'log.csv' has two columns 'q', the 2. and the 3."),
    (lambda: read("t,q\n0,1\n\n1,2,3\n"), "'log.csv', line 4 has 3 cells for 2 columns."),
    (lambda: read("t,q\n0,1\n# x\n1,two\n"), "'log.csv', line 4, column 'q': 'two' is no number."),
    (lambda: read("t,q\n0,1\n,2\n"), "'log.csv', line 3: the time, column 't', is missing or too large."),
    (lambda: read("t,q\n0,1\n\n2,2\n1,3\n"), "'log.csv', line 5: time runs backwards, from 2 to 1 in 't'."),
    (
        lambda: read("t,q\n0,1\n1,2\n1,3\n"),
        "'log.csv', line 4: the time 1 in 't' stands there twice, with different values.",
    ),
    (
        lambda: read("t,q\n0,1e60\n"),
        "'log.csv': channel 'q' is 1e+60 at 0 s; values must be at most 1e+50 in size, and NaN where"
        " they are missing.",
    ),
    (
        lambda: read("t,q\n0,1\n", columns={"x": "p"}),
        "There is no column (in 'log.csv') named 'p'. Valid: q.",
    ),
    (lambda: read("t,q,s\n0,1,a\n", columns={"x": "s"}), "'log.csv': column 's' holds text ('a' in line 2)."),
    (
        lambda: read("t,q\n0,1\n", units={"p": "deg"}),
        "There is no channel (in the units for 'log.csv') named 'p'. Valid: q.",
    ),
    (lambda: read("t;q\n0;1.234,5\n1;2\n"), "'log.csv', line 2, column 'q': '1.234,5' is no number."),
    (lambda: read(b"PK", "log.npz"), "'log.npz' is not a whole .npz file as np.savez writes it."),
    (
        lambda: npz(a=T),
        "'log.npz' has no column of time; name it with time= or give rate= in Hz. Its columns: a.",
    ),
    (lambda: npz(t=T[::-1], a=T), "'log.npz', row 1: time runs backwards, from 1 to 0.99 in 't'."),
    (lambda: npz(t=T, a=T[1:]), "'log.npz' has no channels besides time; it has t, a."),
    (
        lambda: mat(a=T),
        "'log.mat' has no column of time; name it with time= or give rate= in Hz. Its columns: a.",
    ),
    (
        lambda: read(
            b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM" + bytes(9), "log.mat"
        ),
        "'log.mat' is a MATLAB v7.3 (HDF5) file; save it with save('log.mat', …, '-v7') to read it here.",
    ),
    (lambda: write_log(LOG, "log.xls"), "'log.xls' ends in '.xls'; valid: .csv, .npz."),
    (lambda: write_log(LOG, "no/log.csv"), "'no/log.csv' cannot be written: No such file or directory."),
    (
        lambda: write_log(LOG.renamed({"t": "q"}), "log.csv"),
        "A channel 't' cannot be written, for it would be read as time; rename it.",
    ),
    (
        lambda: write_log(LOG.renamed({"q.time": "q"}), "log.npz"),
        "A channel 'q.time' cannot be written, for it would be read as time; rename it.",
    ),
]


@pytest.mark.parametrize(("provoke", "sentence"), [*SIGNALS, *ARRAYS, *FILES])
def test_what_is_wrong_is_said_in_a_sentence(provoke, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MechidError) as caught:
        provoke()
    assert str(caught.value) == sentence
