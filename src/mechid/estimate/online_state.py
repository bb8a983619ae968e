"""The state of a running `Tracker` as plain arrays and back: what is saved so that a stream can be gone on with.

A tracker that is restored gives, sample by sample, bit by bit what the one that was saved would have given. A
search that was under way begins again, with the samples that it had.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.beside import Request
from mechid.estimate.online import Pending, Settling, Tracker, Tracking
from mechid.estimate.online_known import BEYOND
from mechid.estimate.online_parts import Aside, Held
from mechid.estimate.recursive import Accumulated, Recursive
from mechid.files import replacing

Array = np.ndarray

FORMAT = 5
PLAIN = ("count", "puzzled", "searches", "seconds")
RUNNING = ("surprise", "misfit", "beyond")
ARRAYS = ("omega", "omega_covariance", "sensitivity", "ring", "reset", "calm", "excitation", "directions")


def state(tracking: Tracking) -> dict[str, Any]:
    """All that a tracker knows: arrays, and under "about" what is none, as JSON."""
    form = tracking.form
    about: dict[str, Any] = {"format": FORMAT, "form": _kind(form)}
    about |= {name: getattr(tracking, name) for name in PLAIN}
    arrays: dict[str, Any] = {name: getattr(tracking, name) for name in ARRAYS}
    arrays["settled"] = np.array(tracking.settled)
    if tracking.noise is not None:
        arrays["noise"] = tracking.noise
    if tracking.estimate is not None:
        arrays["triangle"] = tracking.estimate.triangle
        about |= {name: getattr(tracking.estimate, name) for name in RUNNING}
        arrays["estimate_noise"] = tracking.estimate.noise
    if tracking.newcomer is not None:
        arrays["newcomer"] = tracking.newcomer.triangle
        about["newcomer"], about["suspected"] = tracking.newcomer.rows, list(tracking.suspected)
    aside = tracking.aside
    about["aside"] = {name: getattr(aside, name) for name in ("outliers", "crowd", "last")}
    about["held"] = [[held.count, held.time] for held in aside.held]
    for i, held in enumerate(aside.held):
        arrays[f"held_{i}_phi"], arrays[f"held_{i}_y"] = held.phi, held.y
    if tracking.settling is not None:
        settling = asdict(tracking.settling)
        for key in ("before", "last"):
            if settling.pop(key) is not None:
                arrays[f"settling_{key}"] = np.array(getattr(tracking.settling, key))
        about["settling"] = settling
    if tracking.pending is not None:
        request = tracking.pending.request
        about["pending"] = {"called": tracking.pending.called, "solver": request.solver}
        arrays["pending_samples"] = request.samples
        for key in ("noise", "start"):
            if getattr(request, key) is not None:
                arrays[f"pending_{key}"] = getattr(request, key)
    return {"about": json.dumps(about), **{name: np.array(a) for name, a in arrays.items()}}


def _kind(form: Any) -> list[str]:
    """What tells forms apart."""
    return [type(form).__name__, *form.names, *form.nonlinear, *form.channels]


def restored(tracker: Tracker, given: Mapping[str, Any]) -> Tracking:
    """A running tracker as it was when its `state` was taken."""
    tracking = Tracking(tracker)
    try:
        about = json.loads(str(given["about"]))
        same = about["format"] == FORMAT and about["form"] == _kind(tracker.form)
        if not same or given["ring"].shape != tracking.ring.shape:
            raise MechidError("The state belongs to another form, window or version: start anew.")
        for name in PLAIN:
            setattr(tracking, name, about[name])
        for name in ARRAYS:
            setattr(tracking, name, np.array(given[name]))
        tracking.settled = (given["settled"][0], given["settled"][1])
        if "noise" in given:
            tracking.noise = np.array(given["noise"])
        if "triangle" in given:
            reset = tracking.reset
            estimate = Recursive(
                np.zeros(tracking.n), reset, given["estimate_noise"], tracker.forgetting, reset=reset
            )
            estimate.triangle[:] = given["triangle"]
            for name in RUNNING:
                setattr(estimate, name, about[name])
            tracking.estimate = estimate
        if "newcomer" in given:
            tracking.newcomer = Accumulated(tracking.n, given["estimate_noise"])
            tracking.newcomer.triangle = np.asfortranarray(given["newcomer"])
            tracking.newcomer.rows = about["newcomer"]
            tracking.suspected = (int(about["suspected"][0]), float(about["suspected"][1]))
        held = [
            Held(int(count), float(time), np.array(given[f"held_{i}_phi"]), np.array(given[f"held_{i}_y"]))
            for i, (count, time) in enumerate(about["held"])
        ]
        tracking.aside = Aside(held, **about["aside"])
        tracking.settling = _settling(about.get("settling"), given)
        pending = about.get("pending")
        if pending is not None:
            request = Request(
                tracker.form,
                np.array(given["pending_samples"]),
                tracking.bounds,
                given.get("pending_noise"),
                pending["solver"],
                given.get("pending_start"),
                tracker.criterion,
                BEYOND,
            )
            tracking.pending = Pending(request, pending["called"])
            tracking.ask()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MechidError(f"The state is none of a tracker of this version ({error}): start anew.") from None
    return tracking


def _settling(about: dict[str, Any] | None, given: Mapping[str, Any]) -> Settling | None:
    if about is None:
        return None
    before, last = given.get("settling_before"), given.get("settling_last")
    return Settling(**about, before=None if before is None else (before[0], before[1]), last=last)


def save_state(given: Mapping[str, Any], path: Path) -> None:
    """Into an NPZ file, whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **given)


def load_state(path: Path) -> dict[str, Any]:
    """From an NPZ file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise MechidError(f"There is no state '{path}'.") from None
    except OSError as error:
        raise MechidError(f"'{path}' cannot be read: {error.strerror or error}.") from None
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise MechidError(f"'{path}' is no state of a tracker.") from None
