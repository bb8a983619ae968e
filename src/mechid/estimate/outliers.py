"""Outliers of measured forces, found sample by sample before neighbours are averaged.

A row is the mean of many samples. Where single samples lie off, nearly every row holds some, and a robust loss has
no row left to believe. So samples are looked at first: what a fit leaves of each, less the median of its
neighbours (the model's own errors are slow), against the usual size of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mechid.estimate.linear import MAD
from mechid.estimate.linear_form import MechanismForm, acts_on
from mechid.estimate.measured_motion import Motion
from mechid.estimate.regression_fit import Explained
from mechid.model.parts import Motor

OFF = 6.0
"""standard deviations from its neighbours, beyond which a sample is an outlier"""
NEIGHBOURS = 21
"""samples of which the median is taken at least"""
KEPT = 0.25
"""part of a row's samples that must be good for it to count"""
CHUNK = 4096
"""samples whose rows are in memory at once"""


class Averaged(NamedTuple):
    """A log's motion, and its rows with all samples in them."""

    motion: Motion
    rows: Explained


def outliers(form: MechanismForm, motion: Motion, theta: np.ndarray) -> np.ndarray:
    """(N, outputs) which samples of the forces lie off."""
    from scipy.ndimage import median_filter

    width = max(NEIGHBOURS, motion.together) | 1
    rest = np.empty((len(motion.samples), len(form.outputs)))
    for run in motion.runs:
        left = _residual(form, motion.samples[run], theta)
        rest[run] = left - median_filter(left, size=(width, 1), mode="nearest")
    steps = [np.abs(np.diff(rest[run], axis=0)) for run in motion.runs]
    usual = MAD * np.median(np.abs(rest), axis=0)
    # at extremes of what is smooth a median is exact nearly everywhere
    usual = np.maximum(usual, np.median(np.concatenate(steps), axis=0))
    return np.abs(rest) > OFF * np.maximum(usual, 1e-9 * np.max(np.abs(rest), axis=0, initial=1e-300))


def without(form: MechanismForm, averaged: Averaged, off: np.ndarray) -> Explained:
    """The rows as means of the samples that do not lie off."""
    motion, rows = averaged
    hit = np.flatnonzero(off.any(1))
    if not len(hit):
        return rows
    # programs are compiled for few sizes
    padded = np.pad(hit, (0, (1 << (len(hit) - 1).bit_length()) - len(hit)), mode="edge")
    phi, y = (x[: len(hit)] for x in form.rows(motion.samples[padded]))
    motors = motor_forces(form, motion.samples[hit], 1)
    bad = off[hit]
    row = hit // motion.together
    left_out = np.zeros(rows.y.shape)
    np.add.at(left_out, row, bad)
    good = motion.together - left_out

    def mean(of_all: np.ndarray, of_hit: np.ndarray) -> np.ndarray:
        shape = (1,) * (of_all.ndim - 2)
        total = motion.together * of_all
        np.subtract.at(total, row, of_hit * bad.reshape(*bad.shape, *shape))
        return total / np.maximum(good, 1.0).reshape(*good.shape, *shape)

    enough = good >= KEPT * motion.together
    kept = np.where(enough, mean(rows.y, y), np.nan)
    return rows._replace(
        phi=mean(rows.phi, phi),
        y=kept,
        motors=mean(rows.motors, motors),
        notes=(*rows.notes, _told(form, rows, off)),
    )


def motor_forces(form: MechanismForm, samples: np.ndarray, together: int) -> np.ndarray:
    """(N, outputs, motors) generalized force of each motor by a gain and a gear ratio of one."""
    m = form.mechanism
    motion = form._motion(samples)
    motors = [e for e in m.elements if isinstance(e, Motor)]
    force = np.zeros((len(m.coordinates), len(motors), len(samples)))
    for k, e in enumerate(motors):
        for i, ratio in acts_on(m, e.coordinate):
            force[i, k] = ratio * motion.u[m.input_names.index(e.name)]
    projected = form._projected(motion, force)
    count = len(samples) // together
    means = projected[..., : count * together].reshape(*projected.shape[:2], count, together).mean(-1)
    return np.moveaxis(means, -1, 0)


def _residual(form: MechanismForm, samples: np.ndarray, theta: np.ndarray) -> np.ndarray:
    found = []
    for first in range(0, len(samples), CHUNK):
        phi, y = form.rows(samples[first : first + CHUNK])
        found.append(phi @ theta - y)
    return np.concatenate(found)


def _told(form: MechanismForm, rows: Explained, off: np.ndarray) -> str:
    counts = off.sum(0)
    parts = ", ".join(f"{n} of '{name}'" for name, n in zip(form.outputs, counts, strict=True) if n)
    return (
        f"Experiment '{rows.name}': of {len(off)} samples of each force {parts} lie more than {OFF:g} standard "
        "deviations off their neighbours and were left out before averaging."
    )
