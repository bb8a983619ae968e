"""`LinearForm`: equations that are linear in θ once a sample is measured."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class LinearForm(Protocol):
    """y = φ(x; ω) θ: what is linear in θ once a sample x is measured and the nonlinear numbers ω are fixed."""

    @property
    def names(self) -> tuple[str, ...]:
        """of θ"""
        ...

    @property
    def units(self) -> tuple[str, ...]:
        """of θ"""
        ...

    @property
    def nonlinear(self) -> tuple[str, ...]:
        """of ω; may be empty"""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """of the rows that one sample gives"""
        ...

    @property
    def channels(self) -> tuple[str, ...]:
        """of a sample, in order"""
        ...

    def rows(self, samples: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ (N, outputs, names) and y (N, outputs) of samples (N, channels)."""
        ...
