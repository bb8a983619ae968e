"""The examples of `examples/core`, in a small size; whole with MECHID_SLOW=1."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "core"
WHOLE = bool(os.environ.get("MECHID_SLOW"))


@pytest.fixture
def example(monkeypatch, capsys):
    """The `main` of an example by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield lambda name: importlib.import_module(name).main
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_the_gradient_of_a_loss_of_ones_own(example):
    """Outliers of 300 standard deviations hardly move what is found."""
    found = example("own_loss")(1000 if WHOLE else 200)
    assert found["hinge.damping"] == pytest.approx(0.05, rel=2e-2)
    assert found["rod.mass"] == pytest.approx(1.0, rel=2e-3)


def test_a_neural_friction_term(example):
    """Friction with a Stribeck curve, within a hundredth of its largest value; in short an honest beginning."""
    if WHOLE:
        assert example("neural_friction")() < 0.004
    else:
        assert example("neural_friction")(200, 2, 12) < 0.19


@pytest.mark.slow
def test_a_posterior_by_nuts(example):
    """Its spread is the standard deviation of the fit; the sampler alone takes half a minute to compile."""
    pytest.importorskip("numpyro", reason="numpyro is in the group of dependencies 'docs'")
    for std, spread in example("posterior")().values():
        assert spread == pytest.approx(std, rel=0.2)


def test_hessian_vector_products(example):
    """Symmetric, and not the Gauss–Newton matrix far from the minimum."""
    H, G = example("curvature")(1000 if WHOLE else 60)
    assert pytest.approx(H.T, rel=1e-8) == H
    assert pytest.approx(G.T, rel=1e-8) == G
    assert np.abs(H - G).max() > 1e-3 * np.abs(G).max()


def test_many_fits(example):
    ratio = example("many_fits")(*((1000, 500) if WHOLE else (12, 100)))
    low, high = (0.93, 1.07) if WHOLE else (0.4, 1.8)
    assert low < ratio.min() <= ratio.max() < high
