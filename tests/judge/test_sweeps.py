"""`sweep`: the fits are those that come out one by one, in their order; a point that fails says why."""

from __future__ import annotations

import pytest
from test_validation import FREE, OTHER, ROD, STEPPER, SWING

from mechid import Fit, MechidError, joint, sweep

pytestmark = pytest.mark.xdist_group("validation")


def fitted(weight, begin=None):
    return joint(ROD, STEPPER, SWING, FREE, state_error_weight=weight, marginal=False, begin=begin)


def test_fits_are_those_of_each_point():
    weights = [1e8, 1e9, 1e10, -1.0, 1e11]
    found = sweep(fitted, weights)
    for weight, fit in zip(weights, found, strict=True):
        if weight < 0:
            assert isinstance(fit, MechidError)
            assert "must be > 0" in str(fit)
            continue
        alone = fitted(weight)
        assert isinstance(fit, Fit)
        assert fit.converged
        for name, p in alone.parameters.items():
            assert abs(fit.values[name] - p.value) < 0.01 * p.std
    # begun at the first one's end
    assert sum(f.iterations for f in found[3:] if isinstance(f, Fit)) <= fitted(1e11).iterations


def test_a_fit_of_something_else_to_begin_with():
    fit = fitted(1e9)
    with pytest.raises(
        MechidError, match="begin must be a joint estimation or a full discretisation of the same"
    ):
        joint(ROD, STEPPER, [SWING, OTHER], FREE, state_error_weight=1e9, begin=fit)


def test_a_sweep_over_nothing():
    with pytest.raises(MechidError, match="at least one point"):
        sweep(fitted, [])
