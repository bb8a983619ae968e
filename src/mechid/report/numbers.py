"""Numbers as text, with as many digits as their standard deviation lets them have."""

from __future__ import annotations

import math


def digits(value: float, std: float) -> tuple[str, str]:
    """A value and its std as text: two significant digits of the std, and the value to the same place.

    Very large and very small numbers share a power of ten. Without a std six digits and an empty text.
    """
    if not (math.isfinite(value) and math.isfinite(std)):
        return f"{value:.6g}", ""
    if std <= 1e-9 * abs(value) or std == 0.0:
        return f"{value:.10g}", f"{std:.1e}" if std else "0"
    top = math.floor(math.log10(max(abs(value), std)))
    power = top if top < -3 or top > 5 else 0
    value, std = value / 10.0**power, std / 10.0**power
    places = 1 - int(f"{std:.1e}".partition("e")[2])
    ending = f"e{power:+03d}" if power else ""
    texts = [f"{round(x, places):.{max(places, 0)}f}" for x in (value, std)]
    return f"{texts[0]}{ending}", f"{texts[1]}{ending}"
