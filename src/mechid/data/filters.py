"""Zero-phase filters of one channel, run by run: low-pass, derivative, spikes. Sentences say what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mechid.data.runs import EVEN, is_even, runs, typical_step
from mechid.errors import MechidError

LOWEST = 1e-5
"""of the rate: cutoffs below it drown in rounding"""

Run = Callable[[np.ndarray], np.ndarray]


def low_pass(
    what: str, time: np.ndarray, values: np.ndarray, cutoff: float, order: int
) -> tuple[np.ndarray, list[str]]:
    """Samples through a Butterworth filter forwards and backwards, and notes on runs that were too short.

    No phase; the gain is 1 / (1 + (tan πfT / tan πf_cT)^2n), one half at the cutoff f_c (Hz), n the order.
    """
    from scipy.signal import butter, sosfiltfilt

    positive(cutoff, "cutoff=", "Hz")
    if not isinstance(order, int) or not 1 <= order <= 10:
        raise MechidError(f"order= of a low-pass must be a whole number from 1 to 10, not {order!r}.")
    fewest = 3 * (2 * ((order + 1) // 2) + 1) + 1
    if len(time) < fewest:
        raise _too_short(what, fewest)
    step = typical_step(time)
    if cutoff * step < LOWEST:
        raise MechidError(
            f"{what}: a cutoff of {cutoff:g} Hz is below {LOWEST:g} of the rate, {1.0 / step:g} Hz;"
            " resample it first."
        )
    if cutoff * step >= 0.5:
        raise MechidError(f"{what}: a cutoff of {cutoff:g} Hz is not below half the rate, {0.5 / step:g} Hz.")
    sos = np.asarray(butter(order, cutoff, fs=1.0 / step, output="sos"))
    # five periods of the cutoff: until the start of the filter has died down
    padding = max(fewest - 1, math.ceil(5.0 / (cutoff * step)))

    def filtered(x: np.ndarray) -> np.ndarray:
        # about the first sample, so that a constant comes out as it is
        return x[0] + sosfiltfilt(sos, x - x[0], padlen=min(padding, len(x) - 1))

    return _by_runs(what, time, values, fewest, filtered)


def central_differences(what: str, time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Derivative by central differences, of second order also at the ends and on uneven time stamps."""
    out = np.full(len(values), np.nan)
    lost = []
    for run in runs(time, values):
        if len(run) < 3:
            lost.append(run)
        else:
            out[run] = np.gradient(values[run], time[run], edge_order=2)
    return out, _notes(what, time, values, lost, 3)


def local_polynomial(
    what: str, time: np.ndarray, values: np.ndarray, window: float, order: int
) -> tuple[np.ndarray, list[str]]:
    """Derivative of the polynomial of degree `order` that fits best over `window` (s) around each sample.

    This is the filter of Savitzky and Golay; within half a window of the ends one polynomial serves all samples.
    """
    from scipy.signal import savgol_filter

    positive(window, "window=", "s")
    if not isinstance(order, int) or not 1 <= order <= 10:
        raise MechidError(f"order= of the polynomial must be a whole number from 1 to 10, not {order!r}.")
    if len(time) <= order:
        raise _too_short(what, order + 1)
    step = typical_step(time)
    width = 2 * int(min(window / step, 1e9) / 2.0 + 1e-9) + 1
    if width <= order:
        raise MechidError(
            f"{what}: a window of {window:g} s holds {width} samples; degree {order} needs {order + 1} at least,"
            f" {_needed(order) * step:.3g} s."
        )

    def differentiated(x: np.ndarray) -> np.ndarray:
        return np.asarray(savgol_filter(x - x[0], width, order, deriv=1, delta=step))

    return _by_runs(what, time, values, width, differentiated)


def spikes(time: np.ndarray, values: np.ndarray, threshold: float, window: int) -> np.ndarray:
    """Which samples are spikes (Hampel): further from the median of the samples around them than usual there.

    Usual is the median distance from that median (times 1.4826, the standard deviation of Gaussian noise), but not
    less than the usual step from sample to sample, so that the steps of an encoder are none.
    """
    positive(threshold, "threshold=", "standard deviations")
    if not isinstance(window, int) or window < 3 or window % 2 == 0:
        raise MechidError(f"window= must be an odd number of samples from 3 on, not {window!r}.")
    found = np.zeros(len(values), bool)
    there = np.flatnonzero(~np.isnan(values))
    x = values[there]
    if len(x) < window:
        return found
    changes = np.abs(np.diff(x))
    least = float(np.median(changes[changes > 0.0])) if np.any(changes > 0.0) else 0.0
    around = np.lib.stride_tricks.sliding_window_view(np.pad(x, window // 2, mode="reflect"), window)
    middle = np.median(around, axis=1)
    usual = 1.4826 * np.median(np.abs(around - middle[:, None]), axis=1)
    found[there] = np.abs(x - middle) > threshold * np.maximum(usual, least)
    return found


def positive(value: float, what: str, unit: str) -> None:
    if not isinstance(value, int | float | np.number) or not 0.0 < value < np.inf:
        raise MechidError(f"{what} must be a positive number of {unit}, not {value!r}.")


def _needed(order: int) -> int:
    """The fewest samples of a window: odd, and more than the degree; a window spans one step less."""
    return order + order % 2


def _by_runs(
    what: str, time: np.ndarray, values: np.ndarray, fewest: int, function: Run
) -> tuple[np.ndarray, list[str]]:
    """Each run of equidistant samples by itself; those of fewer than `fewest` samples become missing."""
    out = np.full(len(values), np.nan)
    lost = []
    for run in runs(time, values):
        if len(run) < fewest:
            lost.append(run)
            continue
        if not is_even(time[run]):
            raise MechidError(
                f"{what} is not sampled evenly (steps differ by more than {100 * EVEN:g} %, from"
                f" {np.diff(time[run]).min():.3g} to {np.diff(time[run]).max():.3g} s); resample it first, with"
                f" resampled(rate={1.0 / np.mean(np.diff(time[run])):.4g})."
            )
        out[run] = function(values[run])
    return out, _notes(what, time, values, lost, fewest)


def _too_short(what: str, fewest: int) -> MechidError:
    return MechidError(
        f"{what} has no run of {fewest} samples without a gap, which this needs; filled closes short gaps."
    )


def _notes(what: str, time: np.ndarray, values: np.ndarray, lost: list[np.ndarray], fewest: int) -> list[str]:
    count = sum(len(run) for run in lost)
    if count == np.sum(~np.isnan(values)):
        raise _too_short(what, fewest)
    if not lost:
        return []
    where = ", ".join(f"{time[run[0]]:.5g}" for run in lost[:5]) + (", …" if len(lost) > 5 else "")
    many = "run is" if len(lost) == 1 else "runs are"
    return [f"{what}: {len(lost)} {many} shorter than {fewest} samples and now missing, at {where} s."]
