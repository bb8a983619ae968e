"""The places of tags and attributes in the bytes of an XML file, and edits that leave every other byte alone.

    root = parse(data, "arm.urdf")
    mass = root.find("link", name="forearm").child("inertial").child("mass")
    data = edited(data, [replace_value(mass.attributes["value"], "1.234")])

An edit is a span of bytes and what stands there instead; edits are collected against the original bytes and
applied together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from mechid.errors import MechidError


@dataclass(frozen=True)
class Attribute:
    """One attribute of a start tag. Places are bytes from the beginning of the file."""

    name: str
    value: str
    """as XML means it: entities resolved, line breaks turned into blanks"""
    begin: int
    """where the blanks before its name begin"""
    name_begin: int
    value_begin: int
    """after the opening quote"""
    value_end: int
    """at the closing quote"""
    quote: bytes

    @property
    def end(self) -> int:
        return self.value_end + 1


@dataclass(frozen=True, eq=False, repr=False)
class Element:
    """One element: its start tag, its attributes in their order, and the elements inside."""

    name: str
    parent: Element | None
    attributes: dict[str, Attribute]
    begin: int
    """where its < stands"""
    tag_end: int
    """after the > of its start tag"""
    empty: bool
    """written as <name/>"""
    line: int
    children: list[Element] = field(default_factory=list)
    closing: list[int] = field(default_factory=list)
    """where its end tag begins and ends; both are `tag_end` for <name/>"""

    @property
    def end(self) -> int:
        return self.closing[1]

    def get(self, attribute: str) -> str | None:
        found = self.attributes.get(attribute)
        return found.value if found else None

    def child(self, name: str) -> Element | None:
        """The first element of that name directly inside."""
        return next((c for c in self.children if c.name == name), None)

    def walk(self) -> Iterator[Element]:
        """This element and every one inside, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, *names: str, **attributes: str) -> Element | None:
        """The first element inside with one of the names and with these attributes."""
        for element in self.walk():
            if element.name in names and all(element.get(k) == v for k, v in attributes.items()):
                return element
        return None

    def ancestors(self) -> Iterator[Element]:
        """What it stands in, from the inside out."""
        around = self.parent
        while around is not None:
            yield around
            around = around.parent

    def __repr__(self) -> str:
        return f"<{self.name}> in line {self.line}"


# Reading

_OPAQUE = re.compile(rb"<!--(.*?)-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)
_TAG_NAME = re.compile(rb"<([^\s/>]+)")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=/>]+)\s*=\s*(?:(")([^"]*)"|(')([^']*)')""")
_TAG_END = re.compile(rb"\s*(/?)>")


def parse(data: bytes, where: str) -> Element:
    """The root element of an XML text; `where` names it in a refusal."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:4]:
        raise MechidError(f"'{where}' is stored as UTF-16: save it as UTF-8 first.")
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    stack: list[Element] = []
    roots: list[Element] = []

    def start(name: str, flat: list[str]) -> None:
        at, around = parser.CurrentByteIndex, stack[-1] if stack else None
        element = _start_tag(data, at, name, flat, around, parser.CurrentLineNumber)
        (around.children if around else roots).append(element)
        stack.append(element)

    def end(_: str) -> None:
        element = stack.pop()
        at = parser.CurrentByteIndex
        both = [element.tag_end] * 2 if element.empty else [at, data.index(b">", at) + 1]
        element.closing.extend(both)

    def refuse(*_: Any) -> None:
        raise MechidError(
            f"'{where}' declares a document type in line {parser.CurrentLineNumber}: that is not supported, "
            "take the <!DOCTYPE …> out."
        )

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(_OPAQUE.sub(_blank_comment, data), True)
    except expat.ExpatError as error:
        what = f"{expat.ErrorString(error.code)} in line {error.lineno}"
        if stack and what.startswith("no element found"):
            what = f"it ends in line {error.lineno}, inside <{stack[-1].name}>"
        raise MechidError(f"'{where}' is not valid XML: {what}.") from None
    except (LookupError, ValueError):
        raise MechidError(f"'{where}' declares an encoding that cannot be read: save it as UTF-8.") from None
    return roots[0]


def _blank_comment(match: re.Match[bytes]) -> bytes:
    """A comment of the same length without text: -- and stray bytes in comments are common and harmless."""
    if match.group(1) is None:
        return match.group()
    return b"<!--" + re.sub(rb"[^\n]", b" ", match.group(1)) + b"-->"


def _start_tag(
    data: bytes, at: int, name: str, flat: list[str], parent: Element | None, line: int
) -> Element:
    """The start tag at a place; expat has the names and values, the bytes have the places."""
    head = _TAG_NAME.match(data, at)
    assert head is not None
    end, attributes = head.end(), {}
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        match = _ATTRIBUTE.match(data, end)
        assert match is not None
        group = 3 if match.group(2) else 5
        quote = match.group(group - 1)
        spans = match.start(), match.start(1), match.start(group), match.end(group)
        attributes[key] = Attribute(key, value, *spans, quote)
        end = match.end()
    tail = _TAG_END.match(data, end)
    assert tail is not None
    return Element(name, parent, attributes, at, tail.end(), bool(tail.group(1)), line)


# Edits


@dataclass(frozen=True)
class Edit:
    """What stands between two places instead; an insertion where they are the same."""

    begin: int
    end: int
    text: bytes


def replace_value(attribute: Attribute, value: str) -> Edit:
    """Another value between the same quotes."""
    return Edit(attribute.value_begin, attribute.value_end, _escaped(value, attribute.quote))


def replace_attribute(attribute: Attribute, name: str, value: str) -> Edit:
    """Another attribute in the same place, between the same quotes."""
    text = name.encode() + b"=" + attribute.quote + _escaped(value, attribute.quote) + attribute.quote
    return Edit(attribute.name_begin, attribute.end, text)


def remove_attribute(attribute: Attribute) -> Edit:
    """Nothing in the place of an attribute and the blanks before it."""
    return Edit(attribute.begin, attribute.end, b"")


def add_attribute(data: bytes, element: Element, name: str, value: str) -> Edit:
    """A new attribute after the last one, with its quotes; on a line of its own where the others have theirs."""
    present = list(element.attributes.values())
    if not present:
        at = element.begin + 1 + len(_name_bytes(data, element))
        return Edit(at, at, b' %s="%s"' % (name.encode(), _escaped(value, b'"')))
    gaps = [data[a.begin : a.name_begin] for a in present[1:]]
    gap = gaps[-1] if gaps and all(b"\n" in g for g in gaps) else b" "
    last = present[-1]
    text = gap + name.encode() + b"=" + last.quote + _escaped(value, last.quote) + last.quote
    return Edit(last.end, last.end, text)


def insert_children(data: bytes, parent: Element, texts: Sequence[str], after: Element | None = None) -> Edit:
    """New elements inside `parent`, behind its child `after` or before all, indented like those there.

    A line break in a text becomes the break and indentation of its place, a tab one step of indentation more.
    """

    def laid(gap: bytes, beside: Element) -> bytes:
        step = _step(data, beside) if gap else b""
        return b"".join(gap + t.encode().replace(b"\t", step).replace(b"\n", gap) for t in texts)

    if parent.children:
        at = _line_end(data, after.end if after else parent.tag_end)
        return Edit(at, at, laid(_gap(data, parent.children[0]), parent.children[0]))
    outer = _gap(data, parent)
    gap = outer + _step(data, parent) if outer else b""
    body = laid(gap, parent)
    if parent.empty:
        slash = data.rindex(b"/", 0, parent.tag_end)
        while data[slash - 1 : slash].isspace():
            slash -= 1
        close = outer + b"</" + _name_bytes(data, parent) + b">"
        return Edit(slash, parent.tag_end, b">" + body + close)
    at = _line_end(data, parent.tag_end)
    inside = data[at : parent.closing[0]]
    return Edit(at, at, body if b"\n" in inside or not gap else body + outer)


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The bytes with all edits in their places; insertions at one place keep their order."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.begin, e.end)):
        if edit.begin < at:
            raise ValueError(f"Two edits overlap at byte {edit.begin}.")
        parts += [data[at : edit.begin], edit.text]
        at = edit.end
    return b"".join([*parts, data[at:]])


def _escaped(value: str, quote: bytes) -> bytes:
    text = value.replace("&", "&amp;").replace("<", "&lt;")
    mark, entity = ('"', "&quot;") if quote == b'"' else ("'", "&apos;")
    return text.replace(mark, entity).encode("ascii", "xmlcharrefreplace")


def _name_bytes(data: bytes, element: Element) -> bytes:
    match = _TAG_NAME.match(data, element.begin)
    assert match is not None
    return match.group(1)


def _gap(data: bytes, element: Element) -> bytes:
    """The line break and blanks before an element; nothing where it stands behind something in its line."""
    start = element.begin
    while start and data[start - 1 : start] in (b" ", b"\t"):
        start -= 1
    if data[start - 1 : start] != b"\n":
        return b""
    start -= 2 if data[start - 2 : start] == b"\r\n" else 1
    return data[start : element.begin]


def _step(data: bytes, element: Element) -> bytes:
    """The blanks by which this file indents what stands inside."""
    own, above = (_gap(data, e).lstrip(b"\r\n") if e else b"" for e in (element, element.parent))
    if own.startswith(above) and len(own) > len(above):
        return own[len(above) :]
    return b"\t" if own.startswith(b"\t") else b"  "


def _line_end(data: bytes, at: int) -> int:
    """Behind the comments that follow in the same line, if nothing else does."""
    match = re.compile(rb"(?:[ \t]*<!--[^\n]*?-->)+(?=[ \t]*\r?\n)").match(data, at)
    return match.end() if match else at


# Numbers in attributes


@dataclass
class NewElement:
    """An element that is to be inserted."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[NewElement] = field(default_factory=list)

    def __str__(self) -> str:
        tag = " ".join([self.name, *(f'{k}="{v}"' for k, v in self.attributes.items())])
        if not self.children:
            return f"<{tag}/>"
        return "\n".join([f"<{tag}>", *(f"\t{child}" for child in self.children), f"</{self.name}>"])


class Pen:
    """Collects numbers that are to stand in attributes; `edits` gives the edits that put them there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._edits: dict[tuple[Element, str], Edit] = {}
        self._new: dict[tuple[Element, str], NewElement] = {}

    def put(
        self, place: Element | NewElement, attribute: str, values: Iterable[float], noise: float = 0.0
    ) -> None:
        """Numbers as an attribute's value, where they are not there already. `noise` is their rounding error."""
        numbers = [float(v) for v in values]
        if isinstance(place, NewElement):
            place.attributes[attribute] = renumbered("", numbers, noise)
        elif present := place.attributes.get(attribute):
            raw = self.data[present.value_begin : present.value_end].decode("latin-1")
            text = renumbered(present.value if "&" in raw else raw, numbers, noise)
            if text != raw:
                self._edits[place, attribute] = replace_value(present, text)
        else:
            text = renumbered("", numbers, noise)
            self._edits[place, attribute] = add_attribute(self.data, place, attribute, text)

    def put_for(
        self,
        place: Element,
        attribute: str,
        values: Iterable[float],
        others: Iterable[str],
        noise: float = 0.0,
    ) -> None:
        """Numbers as an attribute that stands for some others: in the place of the first one there."""
        present = [place.attributes[n] for n in others if n in place.attributes and n != attribute]
        if attribute in place.attributes or not present:
            self.put(place, attribute, values, noise)
        else:
            first = present.pop(0)
            text = renumbered("", [float(v) for v in values], noise)
            self._edits[place, first.name] = replace_attribute(first, attribute, text)
        for other in present:
            self._edits[place, other.name] = remove_attribute(other)

    def child(self, parent: Element, name: str) -> Element | NewElement:
        """The element of that name inside, a new one where there is none."""
        return parent.child(name) or self._new.setdefault((parent, name), NewElement(name))

    def edits(self, last: Sequence[str] = ()) -> list[Edit]:
        """Every edit; new elements stand before their siblings, those named in `last` behind them."""
        found = list(self._edits.values())
        for parent in dict.fromkeys(parent for parent, _ in self._new):
            own = {name: new for (p, name), new in self._new.items() if p is parent}
            texts = {name: str(new) for name, new in own.items() if new.attributes or new.children}
            behind = [t for name, t in texts.items() if name in last and parent.children]
            before = [t for t in texts.values() if t not in behind]
            if before:
                found.append(insert_children(self.data, parent, before))
            if behind:
                found.append(insert_children(self.data, parent, behind, parent.children[-1]))
        return found


def renumbered(text: str, values: Sequence[float], noise: float = 0.0) -> str:
    """A text of numbers with new values; a number that is equal already keeps its figures, blanks stay."""
    words = re.split(r"(\s+)", text)
    places = [i for i, word in enumerate(words) if word.strip()]
    for i, value in zip(places, values, strict=False):
        if not _equal(words[i], value, noise):
            words[i] = figures(value, noise)
    more = [figures(v, noise) for v in values[len(places) :]]
    return " ".join(["".join(words), *more] if places else more)


def figures(value: float, noise: float = 0.0) -> str:
    """The shortest text that reads as the value, or as one that is as near as its rounding error."""
    if noise:
        shorter = (float(f"{value:.{digits}g}") for digits in range(1, 17))
        value = next((x for x in (0.0, *shorter) if abs(x - value) <= noise), value)
    return repr(float(value) + 0.0)


def _equal(word: str, value: float, noise: float) -> bool:
    try:
        number = float(word)
    except ValueError:
        return False
    return abs(number - value) <= max(noise, 1e-15 * max(abs(number), abs(value)))
