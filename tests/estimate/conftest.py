"""The programs of estimation compiled quickly rather than well, once for all modules of this folder."""

from __future__ import annotations

import pytest

from mechid.compile import jit
from mechid.dynamics import linearization, march
from mechid.estimate import residuals

PROGRAMS = [
    (module, name, jit(getattr(module, name).__wrapped__, once=True, static_argnums=static))
    for module, name, static in (
        (linearization, "_linearise", ()),
        (linearization, "_forward", (7,)),
        (linearization, "_backward", (7,)),
        (linearization, "_grown", (2, 6)),
        (linearization, "_matrices", ()),
        (march, "_advance", (5,)),
        (residuals, "_residuals", (5,)),
        (residuals, "_residual_slopes", (7,)),
        (residuals, "_sample_slopes", (6,)),
        (residuals, "_pull", (2, 8, 9)),
    )
]


@pytest.fixture(scope="module", autouse=True)
def quickly():
    """Compiling is nearly all of the time here."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, program in PROGRAMS:
            patch.setattr(module, name, program)
        yield
