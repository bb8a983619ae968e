"""What is said of parameters and the truth: only where a fit explains its log, only of what is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from mechid.studies import shadows

TRUTH = {"J": 1.0, "b": 0.5}


def fit(J: float, b: float = 0.5, *, converged: bool = True, rms: float = 1.0, flags: Any = ()) -> Any:
    return SimpleNamespace(
        converged=converged,
        channels=[SimpleNamespace(rms=rms, std=1.0)],
        parameters={"J": SimpleNamespace(value=J, std=0.01), "b": SimpleNamespace(value=b, std=0.1)},
        flags={"J": flags, "b": ()},
    )


def test_what_lies_far_from_the_truth_is_named_with_the_reason():
    said = shadows.words("spook", 0.01, {"": fit(1.2)}, TRUTH)
    assert "J (20)" in said
    assert "b (" not in said
    assert "first order" in said
    assert "stepper=variational finds the truth" in said
    assert "first order" not in shadows.words("variational", 0.01, {"": fit(1.2)}, TRUTH)


def test_each_of_several_fits_is_named():
    said = shadows.words("spook", 0.01, {"one": fit(1.0), "two": fit(1.1), "three": fit(1.0, 0.1)}, TRUTH)
    assert "are two: J (10); three: b (4):" in said
    assert "one" not in said.split(":")[0]


def test_what_is_near_is_said_to_be():
    assert shadows.words("spook", 0.01, {"": fit(1.02)}, TRUTH).startswith(
        "Every parameter that the data tell"
    )


@pytest.mark.parametrize("flags", [("at bound",), ("not identifiable",)])
def test_nothing_is_said_of_what_is_not_told(flags):
    assert "J (" not in shadows.words("spook", 0.01, {"": fit(1.2, flags=flags)}, TRUTH)


def test_nothing_is_claimed_of_fits_that_explain_nothing():
    assert shadows.words("spook", 0.01, {"": fit(1.2, converged=False)}, TRUTH) == ""
    said = shadows.words("spook", 1.0, {"": fit(1.0, rms=869.0)}, TRUTH)
    assert said.startswith("Residuals are 869 times the noise")
    assert "within" not in said
