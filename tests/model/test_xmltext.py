"""Edits of XML text against the standard library's own parser, over odd but valid formatting."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

import pytest

from mechid.errors import MechidError
from mechid.model import xmltext
from mechid.model.xmltext import (
    Edit,
    add_attribute,
    edited,
    insert_children,
    parse,
    remove_attribute,
    replace_value,
)

FAKE = ['<body name="fake">', "</body>", "a > b", "<inertial mass='9'/>", "]]", "-- two dashes", "“quoted”"]
VALUES = ["1.50", " 1  2\t3 ", "a > b", "a/b", "it's", 'say "no"', "<&>", "é", "x=1", ""]


class Scribe:
    """Writes an element tree with random quotes, blanks, line ends, comments and CDATA."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.newline = self.random.choice(["\n", "\r\n"])
        self.encoding = self.random.choice(["utf-8", "utf-8", "utf-8-sig", "latin-1"])

    def tree(self, depth: int = 0) -> ET.Element:
        pick = self.random
        element = ET.Element(pick.choice(["body", "joint", "xacro:part", "in.er-tial", "b2"]))
        for name in pick.sample(["name", "pos", "mass", "x:y", "é", "value"], pick.randrange(5)):
            element.set(name, pick.choice(VALUES))
        if depth < 4:
            element.extend(self.tree(depth + 1) for _ in range(pick.randrange(4)))
        return element

    def blank(self, least: int = 0) -> str:
        return "".join(
            self.random.choice([" ", "\t", self.newline]) for _ in range(self.random.randint(least, 3))
        )

    def junk(self) -> str:
        fake = "".join(f for f in FAKE if self.random.random() < 0.5)
        fake = fake.encode("latin-1", "ignore").decode("latin-1") if self.encoding == "latin-1" else fake
        shapes = ["", "", self.blank(), "words &amp; more", f"<!--{fake}-->", f"<?note {fake}?>"]
        return self.random.choice([*shapes, f"<![CDATA[{fake}]]>"])

    def text(self, element: ET.Element) -> str:
        parts = [f"<{element.tag}"]
        for name, value in element.attrib.items():
            quote = self.random.choice("\"'")
            escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace(quote, f"&#{ord(quote)};")
            escaped = escaped.replace("\t", "&#9;")
            parts.append(f"{self.blank(1)}{name}{self.blank()}={self.blank()}{quote}{escaped}{quote}")
        if len(element) or self.random.random() < 0.5:
            parts.append(f"{self.blank()}>{self.junk()}")
            parts += [self.text(child) + self.junk() for child in element]
            return "".join([*parts, f"</{element.tag}{self.blank()}>"])
        return "".join([*parts, f"{self.blank()}/>"])

    def file(self, element: ET.Element) -> bytes:
        head = f'<?xml version="1.0" encoding="{self.encoding.removesuffix("-sig")}"?>{self.newline}'
        prolog = "<!-- <body/> -->" if self.random.random() < 0.5 else ""
        return (head + prolog + self.text(element) + self.newline).encode(self.encoding)


def content(data: bytes) -> list[tuple[str, dict[str, str]]]:
    """Names and attributes in the order of the file, as ElementTree reads them."""
    plain = xmltext._OPAQUE.sub(xmltext._blank_comment, data)
    return [(e.tag, dict(e.attrib)) for e in ET.fromstring(_without_prefixes(plain)).iter()]


def _without_prefixes(data: bytes) -> bytes:
    return data.replace(b"xacro:", b"xacro..").replace(b"x:y", b"x..y")


def flat(element: ET.Element) -> list[tuple[str, dict[str, str]]]:
    def name(text: str) -> str:
        return text.replace("xacro:", "xacro..").replace("x:y", "x..y")

    return [(name(e.tag), {name(k): v for k, v in e.attrib.items()}) for e in element.iter()]


@pytest.mark.parametrize("seed", range(60))
def test_edits_change_what_they_name_and_nothing_else(seed):
    scribe = Scribe(seed)
    tree = scribe.tree()
    data = scribe.file(tree)
    assert content(data) == flat(tree)
    root = parse(data, "odd.xml")
    edits: list[Edit] = []
    for place, element in zip(root.walk(), list(tree.iter()), strict=True):
        assert place.name == element.tag
        assert {k: a.value for k, a in place.attributes.items()} == element.attrib
        for name, attribute in place.attributes.items():
            chance = scribe.random.random()
            if chance < 0.2:
                edits.append(replace_value(attribute, "0.25 '\"<&"))
                element.set(name, "0.25 '\"<&")
            elif chance < 0.3:
                edits.append(remove_attribute(attribute))
                del element.attrib[name]
        last = list(place.attributes)[-1:] and list(place.attributes)[-1] in element.attrib
        if scribe.random.random() < 0.2 and (last or not place.attributes):
            edits += [add_attribute(data, place, n, "7") for n in ("new1", "new2")]
            element.attrib.update(new1="7", new2="7")
        if scribe.random.random() < 0.2:
            edits.append(insert_children(data, place, ["<new/>", '<new a="1"/>']))
            element[:0] = [ET.Element("new"), ET.Element("new", a="1")]
    changed = edited(data, edits)
    assert content(changed) == flat(tree)
    assert outside(changed, edits) == untouched(data, edits)


def untouched(data: bytes, edits: list[Edit]) -> list[bytes]:
    """The pieces of the original between the edits."""
    ordered = sorted(edits, key=lambda e: (e.begin, e.end))
    bounds = [0, *(b for e in ordered for b in (e.begin, e.end)), len(data)]
    return [data[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)]


def outside(data: bytes, edits: list[Edit]) -> list[bytes]:
    """The pieces of the result between the texts of the edits."""
    pieces, at, moved = [], 0, 0
    for e in sorted(edits, key=lambda e: (e.begin, e.end)):
        pieces.append(data[at : e.begin + moved])
        at = e.begin + moved + len(e.text)
        moved += len(e.text) - (e.end - e.begin)
    return [*pieces, data[at:]]


def test_no_edit_is_the_same_file():
    data = b'\xef\xbb\xbf<a x = "1"\r\n  />\r\n'
    assert edited(data, []) == data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a/>", '<a n="1"/>'),
        ("<a />", '<a n="1" />'),
        ("<a></a>", '<a n="1"></a>'),
        ("<a x='2'/>", "<a x='2' n='1'/>"),
        ('<a x="2"\n   y="3"/>', '<a x="2"\n   y="3"\n   n="1"/>'),
        ('<a x="2" y="3"\n   z="4"/>', '<a x="2" y="3"\n   z="4" n="1"/>'),
        ('<a\n  x="2" >t</a>', '<a\n  x="2" n="1" >t</a>'),
    ],
)
def test_a_new_attribute_stands_like_the_others(text, expected):
    data = text.encode()
    assert edited(data, [add_attribute(data, parse(data, "a.xml"), "n", "1")]).decode() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<r>\n  <a>\n    <b/>\n  </a>\n</r>", "<r>\n  <a>\n    <new/>\n    <b/>\n  </a>\n</r>"),
        ("<r>\n\t<a>\n\t\t<b/>\n\t</a>\n</r>", "<r>\n\t<a>\n\t\t<new/>\n\t\t<b/>\n\t</a>\n</r>"),
        ("<r>\n    <a x='1'/>\n</r>", "<r>\n    <a x='1'>\n        <new/>\n    </a>\n</r>"),
        ("<r>\r\n  <a />\r\n</r>", "<r>\r\n  <a>\r\n    <new/>\r\n  </a>\r\n</r>"),
        ("<r>\n <a>\n </a>\n</r>", "<r>\n <a>\n  <new/>\n </a>\n</r>"),
        ("<r>\n <a></a>\n</r>", "<r>\n <a>\n  <new/>\n </a>\n</r>"),
        ("<r><a/></r>", "<r><a><new/></a></r>"),
        ("<r><a><b/></a></r>", "<r><a><new/><b/></a></r>"),
        (
            "<r>\n  <a> <!-- says a -->\n    <b/>\n  </a>\n</r>",
            "<r>\n  <a> <!-- says a -->\n    <new/>\n    <b/>\n  </a>\n</r>",
        ),
    ],
)
def test_a_new_child_is_indented_like_its_siblings(text, expected):
    data = text.encode()
    place = parse(data, "a.xml").find("a")
    assert place is not None
    assert edited(data, [insert_children(data, place, ["<new/>"])]).decode() == expected


def test_a_new_child_goes_behind_its_elder_and_the_remark_beside_it():
    data = b"<a>\n  <b/> <!-- says b -->\n  <c/>\n</a>"
    root = parse(data, "a.xml")
    changed = edited(data, [insert_children(data, root, ["<new/>"], after=root.children[0])])
    assert changed == b"<a>\n  <b/> <!-- says b -->\n  <new/>\n  <c/>\n</a>"


def test_an_attribute_and_a_child_of_one_tag():
    data = b"<a/>"
    root = parse(data, "a.xml")
    edits = [insert_children(data, root, ["<b/>"]), add_attribute(data, root, "n", "1")]
    assert edited(data, edits) == edited(data, edits[::-1]) == b'<a n="1"><b/></a>'


def test_overlapping_edits_are_an_error():
    with pytest.raises(ValueError, match="overlap"):
        edited(b"<abc/>", [Edit(1, 3, b"x"), Edit(2, 4, b"y")])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<a>\n<b>\n</a>", "mismatched tag in line 3"),
        (b"", "no element found"),
        (b'<a x="1" x="2"/>', "duplicate attribute"),
        (b"<!DOCTYPE a>\n<a/>", "document type in line 1"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "document type"),
        (b'<?xml version="1.0" encoding="none"?><a/>', "encoding"),
        (b'<?xml version="1.0" encoding="shift_jis"?><a/>', "encoding"),
        ("<a/>".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(data, words):
    with pytest.raises(MechidError, match=words) as told:
        parse(data, "arm.xml")
    assert "'arm.xml'" in str(told.value)
    assert "\n" not in str(told.value)
