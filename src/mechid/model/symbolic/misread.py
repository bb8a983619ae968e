"""Why a text cannot be read as a formula, with the place of it: an odd character, a bracket, a missing operator."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

INSTEAD = {
    **dict.fromkeys("’‘′´`ʹ", "a rate is written with a plain '"),
    **dict.fromkeys("″”“", "an acceleration is written with two plain '"),
    **dict.fromkeys("−–—", "minus is written -"),
    **dict.fromkeys("·×⋅∙•", "a product is written *"),
    **dict.fromkeys("÷∕", "a quotient is written /"),
    **{x: f"a power is written ^{n}" for n, x in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{x: f"a name ends in _{n}" for n, x in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **dict.fromkeys("[]", "brackets are ( and )"),
    **dict.fromkeys("{}\\", "a name is written plainly, m_1 for m_{1}"),
    "√": "a root is written sqrt(…)",
}
_PLAIN = "+-*/^().,'_= \t\r\n"
# atomic groups: a text of any length is gone through once
_NUMBER = r"(?<![\w.])(?>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_MISSING = (
    # what stands before the place where an operator is missing, and what follows
    re.compile(rf"{_NUMBER}\s*(?=[^\W\d]|\()"),
    re.compile(rf"(?:{_NUMBER}|(?<!\w)(?>[^\W\d]\w*'*)|\))\s+(?=\w|\()"),
    re.compile(r"\)\s*(?=\w|\()"),
    re.compile(r"(?<!')(?>'+)\s*(?=\(|\w)"),
)


def why_unreadable(text: str, functions: Iterable[str]) -> str:
    """The rest of a sentence: what is odd about a text, and where; empty where nothing is seen."""
    if not text.strip():
        return ": there is nothing in it"
    for i, x in enumerate(text):
        if x in INSTEAD or not (x in _PLAIN or x.isalpha() or x.isdecimal()):
            name = unicodedata.name(x, "a character without a name").lower()
            hint = INSTEAD.get(x, "it means nothing in a formula")
            return f": character {i + 1} is {x!r} ({name}); {hint}"
    return _brackets(text) or _primes(text) or _operators(text, functions)


def _brackets(text: str) -> str:
    opened: list[int] = []
    for i, x in enumerate(text):
        if x == "(":
            opened.append(i)
        elif x == ")":
            if not opened:
                return f": the bracket ) at character {i + 1} closes none"
            opened.pop()
    return f": the bracket ( at character {opened[-1] + 1} is not closed" if opened else ""


def _primes(text: str) -> str:
    if m := re.search(r"'{4,}|(?<![\w'])'", text):
        return f": the ' at character {m.start() + 1} is no rate of a name, s', or its acceleration, s''"
    return ""


def _operators(text: str, functions: Iterable[str]) -> str:
    found = [m for pattern in _MISSING if (m := pattern.search(text))]
    if found:
        first = min(found, key=lambda m: m.end())
        behind, at = first[0].strip(), f"at character {first.start() + 1}"
        if behind in functions:
            return f": '{behind}' {at} needs brackets, {behind}(…)"
        return f": behind '{behind}' {at} an operator is missing, such as *"
    if m := re.search(r"[-+*/^]\s*[*/^)]|[-+*/^]\s*$|^\s*[*/^]|\(\s*[*/^]", text.replace("**", "^ ")):
        return f": at '{m[0].strip()}', character {m.start() + 1}, a number or a name is missing"
    return ""


def number_without_use(text: str, largest: float) -> str:
    """The first number of a text that is too large, or so small that nothing is left of it."""
    for m in re.finditer(_NUMBER, text):
        x = float(m[0])
        if x > largest or (x == 0.0 and re.search(r"[1-9]", re.split("[eE]", m[0])[0])):
            return m[0]
    return ""
