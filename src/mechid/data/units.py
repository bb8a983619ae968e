"""Units of measured channels: what a number in a unit is in SI.

    to_si("deg")        # (0.0174…, "rad")
    to_si("N.m")        # (1.0, "N·m")
    to_si("mm/s^2")     # (0.001, "m/s²")

Only units whose SI value is a multiple are known; °C and °F, which also have an offset, are not.
"""

from __future__ import annotations

import math
import re

from mechid.errors import MechidError

_DEG = math.pi / 180.0
_TURN = 2.0 * math.pi

_LISTED: dict[str, tuple[tuple[str, float], ...]] = {
    "": (("", 1.0), ("-", 1.0), ("%", 0.01)),
    "rad": (("mrad", 1e-3), ("deg", _DEG), ("degree", _DEG), ("degrees", _DEG), ("rev", _TURN)),
    "rad/s": (
        ("mrad/s", 1e-3),
        ("deg/s", _DEG),
        ("dps", _DEG),
        ("rpm", _TURN / 60.0),
        ("rev/min", _TURN / 60.0),
        ("rev/s", _TURN),
    ),
    "rad/s²": (("deg/s²", _DEG), ("rev/s²", _TURN)),
    "rad/s³": (("deg/s³", _DEG),),
    "m": (
        ("km", 1e3),
        ("cm", 1e-2),
        ("mm", 1e-3),
        ("um", 1e-6),
        ("in", 0.0254),
        ("inch", 0.0254),
        ("ft", 0.3048),
    ),
    "m/s": (
        ("cm/s", 1e-2),
        ("mm/s", 1e-3),
        ("um/s", 1e-6),
        ("in/s", 0.0254),
        ("km/h", 1.0 / 3.6),
        ("mm/min", 1e-3 / 60.0),
    ),
    "m/s²": (("cm/s²", 1e-2), ("mm/s²", 1e-3), ("in/s²", 0.0254), ("gn", 9.80665)),
    "m/s³": (("mm/s³", 1e-3),),
    "N": (("kN", 1e3), ("mN", 1e-3), ("lbf", 4.4482216152605)),
    "N/s": (("kN/s", 1e3),),
    "N·m": (("kN·m", 1e3), ("mN·m", 1e-3), ("N·cm", 1e-2), ("N·mm", 1e-3), ("mN·mm", 1e-6)),
    "N·m/s": (),
    "N·m/rad": (("N·m/deg", 1.0 / _DEG),),
    "N·m·s/rad": (("N·m·s", 1.0),),
    "N/m": (("N/mm", 1e3), ("kN/m", 1e3)),
    "N·s/m": (),
    "kg": (("g", 1e-3), ("mg", 1e-6), ("lb", 0.45359237)),
    "kg·m²": (("g·cm²", 1e-7), ("kg·cm²", 1e-4), ("kg·mm²", 1e-6)),
    "s": (
        ("sec", 1.0),
        ("second", 1.0),
        ("seconds", 1.0),
        ("ms", 1e-3),
        ("msec", 1e-3),
        ("us", 1e-6),
        ("usec", 1e-6),
        ("ns", 1e-9),
        ("nsec", 1e-9),
        ("min", 60.0),
        ("h", 3600.0),
    ),
    "Hz": (("1/s", 1.0), ("kHz", 1e3)),
    "V": (("kV", 1e3), ("mV", 1e-3), ("uV", 1e-6)),
    "V/s": (),
    "A": (("mA", 1e-3), ("uA", 1e-6)),
    "A/s": (),
    "W": (("kW", 1e3), ("mW", 1e-3)),
    "J": (("kJ", 1e3), ("mJ", 1e-3)),
    "Pa": (("kPa", 1e3), ("MPa", 1e6), ("bar", 1e5)),
    "ohm": (("mohm", 1e-3), ("kohm", 1e3)),
    "H": (("mH", 1e-3),),
    "K": (),
}
"""for each SI unit the others of its dimension, and how many SI units one of them is"""

_RATES = {"rad": "rad/s", "rad/s": "rad/s²", "rad/s²": "rad/s³", "m": "m/s", "m/s": "m/s²", "m/s²": "m/s³"}
_RATES |= {"N": "N/s", "N·m": "N·m/s", "V": "V/s", "A": "A/s", "J": "W"}

_SPELLINGS = (
    (r"°", "deg"),
    (r"[ΩΩ]", "ohm"),
    (r"[µμ]", "u"),
    (r"²", "2"),
    (r"³", "3"),
    (r"\^|\*\*", ""),
    (r"sec(?![a-z])", "s"),
    (r"(?<=\w)[⋅*. \-](?=[A-Za-z])", "·"),
)
"""patterns and what is put in their place, so that N*m, N.m and N·m, s^2, s2 and s² are one"""


def _plain(text: str) -> str:
    for written, plain in _SPELLINGS:
        text = re.sub(written, plain, text)
    return text


_TABLE = {
    spelling: (factor, si)
    for si, others in _LISTED.items()
    for text, factor in ((si, 1.0), *others)
    for spelling in (_plain(text), _plain(text).replace("·", ""))
}
_LOWER = {text.lower(): text for text in _TABLE if not text.startswith("M")}

_UNIT_AT_END = re.compile(r"(.*?\S)\s*[\[(]([^\[\]()]*)[\])]")


def known_units() -> tuple[str, ...]:
    """The units that are known, as they are spelled in sentences."""
    return tuple(text for si, others in _LISTED.items() for text in (si, *(o for o, _ in others)) if text)


def to_si(unit: str) -> tuple[float, str]:
    """Factor and SI unit of a unit: a number in `unit` times the factor is in the SI unit.

    Dots, stars, spaces, ² or ^2, ° or deg are spellings of the same. Upper and lower case matter for one-letter
    units and where M could be mega; RPM and Deg are understood.
    """
    found = _found(unit)
    if found is None:
        raise MechidError(f"'{unit}' is no unit that is known; valid: {', '.join(known_units())}.")
    return found


def same_dimension(a: str, b: str) -> bool:
    """Whether numbers in two units can be converted into each other."""
    return to_si(a)[1] == to_si(b)[1]


def rate_unit(unit: str) -> str:
    """The SI unit of the derivative of a channel in an SI unit; "" where it has none that is known."""
    return _RATES.get(unit, "")


def split_unit(header: str) -> tuple[str, str | None]:
    """Name and unit of a header such as `q1 [deg]` or `torque (Nm)`; no unit where it names none that is known.

    `x []` is a name with the unit "", so that a name may itself end in brackets.
    """
    match = _UNIT_AT_END.fullmatch(header.strip())
    if match and _found(match[2]) is not None:
        return match[1], match[2].strip()
    return header.strip(), None


def with_unit(name: str, unit: str) -> str:
    """The header that `split_unit` takes apart into this name and unit."""
    if unit or split_unit(name)[1] is not None:
        return f"{name} [{unit}]"
    return name


def _found(unit: str) -> tuple[float, str] | None:
    if not isinstance(unit, str):
        return None
    text = _plain(unit.strip())
    if text not in _TABLE and len(text) > 1 and not text.startswith("M"):
        # M is mega to some and a milli to others
        text = _LOWER.get(text.lower(), text)
    return _TABLE.get(text)
