"""The reference: lxml evaluates the same XPath on the same document, by another implementation of XPath 1.0.

`Filter.xpath(text)` on the event must say what `boolean(text)` says on the document, for generated texts and
documents, with a schema and without. Numbers are spelled plainly in the documents; what happens to `007` and
`1.50` is a decision of ours (`docs/use/xml.md`), tested in `tests/xml`.

`ends-with` and `exists` (XPath 2.0) and `like` (ours) are given to lxml as functions written here.
"""

import itertools
import os
from collections.abc import Callable
from random import Random
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from lxml import etree

from roamcast.filter import Filter
from roamcast.filter.index import MatchingIndex
from roamcast.xml import Schema, event_of

# `XPATH_SEEDS=500 pytest …` is the long run of this file.
SEEDS = range(int(os.environ.get("XPATH_SEEDS", "4")))
CASES = 150  # texts for each seed

SCHEMA = Schema(b"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="Place"><xs:sequence>
    <xs:element name="name" type="xs:string" minOccurs="0"/>
    <xs:element name="floor" type="xs:integer" minOccurs="0"/>
    <xs:element name="near" minOccurs="0"><xs:complexType><xs:sequence>
      <xs:element name="name" type="xs:string" minOccurs="0"/></xs:sequence></xs:complexType></xs:element>
    </xs:sequence><xs:attribute name="id" type="xs:string"/></xs:complexType>
  <xs:element name="alarm"><xs:complexType><xs:sequence>
    <xs:element name="name" type="xs:string" minOccurs="0"/>
    <xs:element name="level" type="xs:integer" minOccurs="0"/>
    <xs:element name="heat" type="xs:decimal" minOccurs="0"/>
    <xs:element name="urgent" type="xs:boolean" minOccurs="0"/>
    <xs:element name="place" type="Place" minOccurs="0"/>
    </xs:sequence><xs:attribute name="id" type="xs:string"/><xs:attribute name="count" type="xs:int"/>
  </xs:complexType></xs:element>
  <xs:element name="ping"><xs:complexType><xs:simpleContent><xs:extension base="xs:string">
    <xs:attribute name="id" type="xs:string"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>
</xs:schema>""")

WORDS = ["", "w", "wo", "woods", "ds", "w%s", "a_b", "!", "true", "Ω & <b>", "it's", "wood woods"]
INTEGERS = ["-3", "0", "1", "2", "10", "11"]
DECIMALS = ["-0.5", "0.25", "1.5", "10.5"]
PATTERNS = ["w*", "*ds", "w*ds", "*oo*", "*", "woods", "w%*", "a_*", "wo*ods", "*w*w*"]
COMPARISONS = ["=", "!=", "<", "<=", ">", ">="]


def quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else f'"{text}"'


def element(name: str, attributes: dict[str, str], content: str) -> str:
    written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>"


def some(random: Random, **values: list[str]) -> dict[str, str]:
    """Each of the names with one of its values, or left out."""
    chosen = {name: random.choice([None, *texts]) for name, texts in values.items()}
    return {name: text for name, text in chosen.items() if text is not None}


def leaves(fields: dict[str, str]) -> str:
    return "".join(element(name, {}, escape(text)) for name, text in fields.items())


# With a schema.


def typed_document(random: Random) -> bytes:
    if random.randint(0, 5) == 0:
        text = element("ping", some(random, id=WORDS), escape(random.choice(WORDS)))
        return text.encode()
    inner = leaves(
        some(random, name=WORDS, level=INTEGERS, heat=INTEGERS + DECIMALS, urgent=["true", "false"])
    )
    if random.random() < 0.5:
        below = leaves(some(random, name=WORDS, floor=INTEGERS))
        if random.random() < 0.5:
            below += element("near", {}, leaves(some(random, name=WORDS)))
        inner += element("place", some(random, id=WORDS), below)
    return element("alarm", some(random, id=WORDS, count=INTEGERS), f"\n  {inner}\n").encode()


ALARM = {
    "name": "text", "level": "number", "heat": "number", "urgent": "boolean", "@id": "text",
    "@count": "number", "place": "elements", "place/name": "text", "place/floor": "number",
    "place/@id": "text", "place/near": "elements", "place/near/name": "text",
}  # fmt: skip
PLACE = {
    "name": "text", "floor": "number", "@id": "text", "near": "elements", "near/name": "text"
}  # fmt: skip
PING = {".": "text", "@id": "text"}
NAMES = {
    "//name": "text", ".//name": "text", "//@id": "text", "//floor": "number", "//near//name": "text",
    "//place/*/name": "text", "//@*": "any", "//*": "any", "/*/*": "any", "/alarm/@*": "any",
    "//place//*": "any", "/alarm/place": "elements", "/*/@id": "text", "/ping": "text",
    "/alarm": "elements", "/alarm/level": "number",
}  # fmt: skip
SEVERAL = ("//name", ".//name", "//@id", "/*/@id", "//near//name")  # not for functions that take one node


def literal(random: Random, kind: str) -> str:
    if kind == "text":
        return quoted(random.choice(WORDS))
    number: str = random.choice(INTEGERS + DECIMALS)
    return quoted(number) if random.randint(0, 4) == 0 else number


def comparison(random: Random, path: str, kind: str) -> str:
    operators = COMPARISONS if kind == "number" else ["=", "!="]
    operator = random.choice(operators)
    value = quoted(random.choice(["true", "false"])) if kind == "boolean" else literal(random, kind)
    left, right = (path, value) if random.random() < 0.5 else (value, path)
    return f"{left} {operator} {right}"


def tried(random: Random, path: str, kind: str, one: bool = True) -> str:
    """A condition on one path."""
    shape = random.randint(0, 4)
    if kind in ("elements", "any") or shape == 0:
        return path if random.random() < 0.5 else f"exists({path})"
    if kind == "text" and one and shape <= 2:
        function = random.choice(["starts-with", "ends-with", "contains", "like"])
        text = random.choice(PATTERNS if function == "like" else WORDS)
        return f"{function}({path}, {quoted(text)})"
    return comparison(random, path, kind)


def joined(random: Random, make: Callable[[int], str], depth: int) -> str:
    match random.randint(0, 3):
        case 0:
            return f"not({make(depth - 1)})"
        case 1:
            return f"({make(depth - 1)} or {make(depth - 1)})"
        case 2:
            return f"({make(depth - 1)} and {make(depth - 1)})"
    return random.choice(["true()", "false()"]) if random.randint(0, 9) == 0 else make(depth - 1)


def relative(random: Random, paths: dict[str, str], depth: int) -> str:
    if depth and random.random() < 0.5:
        return joined(random, lambda left: relative(random, paths, left), depth)
    if random.randint(0, 5) == 0:
        return absolute(random, depth=0)
    path = random.choice(sorted(paths))
    if path == "place" and depth:
        return f"place[{relative(random, PLACE, depth - 1)}]/{random.choice(sorted(PLACE))}"
    if paths[path] in ("text", "number") and path != "." and random.randint(0, 3) == 0:
        return f"{path}[{tried(random, '.', paths[path])}]"
    return tried(random, path, paths[path])


def absolute(random: Random, depth: int) -> str:
    if depth and random.randint(0, 2) == 0:
        return joined(random, lambda left: absolute(random, left), depth)
    match random.randint(0, 4):
        case 0:
            path = random.choice(sorted(set(NAMES) - {".//name"}))
            return tried(random, path, NAMES[path], one=path not in SEVERAL)
        case 1:
            return f"/ping[{relative(random, PING, depth)}]"
        case 2:
            return f"{random.choice(['//place', '/alarm/place'])}[{relative(random, PLACE, depth)}]"
        case 3:
            return f"/*[{relative(random, {'@id': 'text', 'level': 'number'}, 0)}]"
    return f"{random.choice(['/alarm', '//alarm'])}[{relative(random, ALARM, depth)}]"


def typed_condition(random: Random) -> str:
    return absolute(random, depth=3)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_schema_the_filter_says_what_lxml_says(seed: int) -> None:
    random = Random(seed)
    said = [
        truth
        for _ in range(CASES)
        for truth in agreed(typed_condition(random), [typed_document(random) for _ in range(4)], SCHEMA)
    ]
    assert 0.2 < sum(said) / len(said) < 0.8  # else the cases prove little


# Without one.

PLAIN = [*WORDS, *INTEGERS, *DECIMALS]
FLAT = {"a": "plain", "b": "plain", "@a": "plain", "@b": "plain"}
DEEP = {**FLAT, "p": "elements", "p/a": "plain", "p/@a": "plain", "p/q": "elements", "p/q/b": "plain"}


def plain_document(random: Random) -> bytes:
    root = random.choice(["x", "y"])
    if random.randint(0, 5) == 0:
        return element(root, some(random, a=PLAIN), escape(random.choice(PLAIN))).encode()
    inner = leaves(some(random, a=PLAIN, b=PLAIN))
    if random.random() < 0.5:
        within = leaves(some(random, a=PLAIN))
        if random.random() < 0.5:
            within += element("q", {}, f" {leaves(some(random, b=PLAIN))}<z/> ")
        inner += element("p", some(random, a=PLAIN), f"{within}<z/>")
    return element(root, some(random, a=PLAIN, b=PLAIN), f"{inner}<!-- so --><z/>").encode()


def plain_relative(random: Random, depth: int) -> str:
    if depth and random.random() < 0.5:
        return joined(random, lambda left: plain_relative(random, left), depth)
    path: str = random.choice(sorted(DEEP))
    if path == "p" and depth:
        return f"p[{plain_relative(random, depth - 1)}]/a"
    if DEEP[path] == "elements":
        return path
    operand = path if random.random() < 0.5 else "."
    match random.randint(0, 3):
        case 0:
            function = random.choice(["starts-with", "ends-with", "contains", "like"])
            words = PATTERNS if function == "like" else WORDS
            condition = f"{function}({operand}, {quoted(random.choice(words))})"
        case 1:
            condition = comparison(random, operand, "text")
        case 2:
            condition = comparison(random, operand, "number")
        case _:
            return path
    return condition if operand == path else f"{path}[{condition}]"


def plain_condition(random: Random) -> str:
    root = random.choice(["/x", "/y", "/*"])
    text = f"{root}[{plain_relative(random, 3)}]"
    match random.randint(0, 5):
        case 0:
            return f"not({text})"
        case 1:
            return f"{text} or /y[{plain_relative(random, 1)}]"
    return text


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_schema_the_filter_says_what_lxml_says(seed: int) -> None:
    random = Random(seed)
    said = [
        truth
        for _ in range(CASES)
        for truth in agreed(plain_condition(random), [plain_document(random) for _ in range(4)], None)
    ]
    assert 0.2 < sum(said) / len(said) < 0.8


# Both.


def agreed(text: str, documents: list[bytes], schema: Schema | None) -> list[bool]:
    """What lxml says of each document, once filter, codec and index have said the same."""
    wanted = Filter.xpath(text, schema)
    again = Filter.decode(wanted.encode())
    index: MatchingIndex[str] = MatchingIndex()
    for number in range(8):  # with a few filters alone the index would try each
        index.add(f"other {number}", OTHERS[number])
    index.add("wanted", wanted)
    answers = []
    for document in documents:
        event = event_of(document, 1, 1, schema)
        said = lxml_says(document, text)
        assert wanted.matches(event) is said, (text, document)
        assert again.matches(event) is said, (text, document)
        assert ("wanted" in index.match(event)) is said, (text, document)
        answers.append(said)
    return answers


OTHERS = [Filter.sql(f"level = {number} OR a > {number}") for number in range(8)]


def lxml_says(document: bytes, text: str) -> bool:
    tree = etree.fromstring(document).getroottree()
    return bool(tree.xpath(f"boolean({text})", extensions=EXTENSIONS))


def string(value: Any) -> str:
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, list):
        return ""
    return str(first) if isinstance(first, str) else "".join(first.itertext())


def like(text: str, pattern: str) -> bool:
    """By taking every way to divide the text; nothing like the product's own matcher."""
    first, star, rest = pattern.partition("*")
    if not star:
        return text == pattern
    return text.startswith(first) and any(like(text[at:], rest) for at in range(len(first), len(text) + 1))


EXTENSIONS: Any = {
    (None, "ends-with"): lambda _, value, text: string(value).endswith(text),
    (None, "exists"): lambda _, value: bool(value),
    (None, "like"): lambda _, value, text: like(string(value), text),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_filter_that_covers_another_matches_all_that_lxml_finds_for_it(seed: int) -> None:
    random = Random(seed)
    documents = [typed_document(random) for _ in range(20)]
    coverings = 0
    for _ in range(CASES // 4):
        one, other = typed_condition(random), typed_condition(random)
        for wide, narrow in itertools.permutations([one, other, f"({one}) and ({other})"], 2):
            if filter_of(wide).covers(filter_of(narrow)):
                coverings += 1
                assert all(lxml_says(each, wide) for each in documents if lxml_says(each, narrow)), (
                    wide,
                    narrow,
                )
    assert coverings > CASES // 4  # the conjunction is covered by each of both, nearly always


def filter_of(text: str) -> Filter:
    return Filter.xpath(text, SCHEMA)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("//name", "//name[. = 'woods']"),
        ("/alarm", "/alarm[level > 3]"),
        ("/alarm[level > 3]", "/alarm/level[. >= 10]"),
        ("//place[floor >= 1]", "/alarm/place[floor = 2 and name = 'x']"),
        ("/alarm[not(level = 3)]", "/alarm[level = 4]"),
        ("/alarm[starts-with(name, 'wo')]", "/alarm[name = 'woods']"),
        ("/*[@id]", "/ping[@id = 'a']"),
    ],
)
def test_a_wider_condition_covers_a_narrower_one_and_not_the_other_way(wide: str, narrow: str) -> None:
    assert Filter.xpath(wide, SCHEMA).covers(Filter.xpath(narrow, SCHEMA))
    assert not Filter.xpath(narrow, SCHEMA).covers(Filter.xpath(wide, SCHEMA))
