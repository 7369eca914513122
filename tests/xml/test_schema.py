"""Schemas: the subset that is read, the types that values get, what is refused."""

import pickle
import re
from pathlib import Path
from random import Random

import pytest

from roamcast.errors import FileError
from roamcast.event import Value
from roamcast.filter.xpath.translation import FieldKind
from roamcast.xml import Field, Schema, TextContent, XmlError, read
from roamcast.xml.definition import Spaces

GOLF = Path(__file__).parents[2] / "examples" / "golf"


def schema(inside: str, **attributes: str) -> Schema:
    written = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return Schema(
        f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"{written}>{inside}</xs:schema>'.encode()
    )


def of_type(type_: str) -> Schema:
    return schema(f'<xs:element name="a" type="{type_}"/>')


def test_the_golf_forum_has_the_fields_of_figure_3_and_a_message() -> None:
    forum = Schema.load(GOLF / "forum.xsd")
    assert forum.namespace == "urn:roamcast:golf-forum"
    assert list(forum.types) == ["PGMFORUM"]
    fields = forum.types["PGMFORUM"]
    assert list(fields) == [
        *("player", "hole", "holescore", "totalscore", "currentrank", "message", "@id", "@timestamp")
    ]
    assert fields["hole"] == Field(TextContent.INTEGER)
    assert fields["message"] == Field(TextContent.TEXT, Spaces.PRESERVE)
    assert "woods" in fields["player"].enumeration and fields["player"].content is TextContent.TEXT
    assert forum.shapes["PGMFORUM"]["hole"] is FieldKind.NUMBER


def test_nested_and_named_types_references_and_choices_give_paths() -> None:
    nested = schema(
        """
        <xs:annotation><xs:documentation>of alarms</xs:documentation></xs:annotation>
        <xs:simpleType name="Level">
          <xs:restriction base="xs:int"><xs:maxInclusive value="9"/></xs:restriction></xs:simpleType>
        <xs:simpleType name="Tight"><xs:restriction base="Level"/></xs:simpleType>
        <xs:complexType name="Place"><xs:all><xs:element name="room" type="xs:token"/>
          <xs:element name="near" minOccurs="0"><xs:complexType><xs:sequence>
            <xs:element name="room" type="xs:string"/></xs:sequence></xs:complexType></xs:element>
          </xs:all><xs:attribute name="wing" type="xs:string"/></xs:complexType>
        <xs:element name="alarm"><xs:complexType><xs:sequence>
          <xs:element name="level" type="Tight"/><xs:element name="place" type="Place"/>
          <xs:choice minOccurs="0"><xs:element name="fire" type="xs:boolean"/>
            <xs:sequence><xs:element name="water" type="xs:double"/><xs:element ref="ping"/></xs:sequence>
          </xs:choice></xs:sequence></xs:complexType></xs:element>
        <xs:element name="ping"><xs:complexType><xs:simpleContent><xs:extension base="xs:date">
          <xs:attribute name="n"><xs:simpleType><xs:restriction base="xs:token">
            <xs:enumeration value="x"/><xs:enumeration value=" y  z "/></xs:restriction></xs:simpleType>
          </xs:attribute></xs:extension></xs:simpleContent></xs:complexType></xs:element>
        """
    )
    ping = {"": Field(TextContent.TEXT), "@n": Field(TextContent.TEXT, enumeration=("x", "y z"))}
    assert nested.types == {
        "alarm": {
            "level": Field(TextContent.INTEGER),
            "place": Field(TextContent.ELEMENTS),
            "place/room": Field(TextContent.TEXT),
            "place/near": Field(TextContent.ELEMENTS),
            "place/near/room": Field(TextContent.TEXT, Spaces.PRESERVE),
            "place/@wing": Field(TextContent.TEXT, Spaces.PRESERVE),
            "fire": Field(TextContent.BOOLEAN),
            "water": Field(TextContent.REAL),
            "ping": ping[""],
            "ping/@n": ping["@n"],
        },
        "ping": {".": ping[""], "@n": ping["@n"]},
    }
    document = b"<alarm><level>3</level><place wing='W'><room> a  b </room></place><fire>1</fire></alarm>"
    assert read(document, nested).attributes == {
        "level": 3,
        "place": True,
        "place/@wing": "W",
        "place/room": "a b",
        "fire": True,
    }


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("xs:integer", "15", 15),
        ("xs:integer", " +015\n", 15),
        ("xs:integer", "-9223372036854775808", -(2**63)),
        ("xs:unsignedByte", "255", 255),
        ("xs:decimal", "4.50", 4.5),
        ("xs:decimal", "4", 4.0),
        ("xs:double", "1e3", 1000.0),
        ("xs:boolean", "true", True),
        ("xs:boolean", " 1 ", True),
        ("xs:boolean", "false", False),
        ("xs:boolean", "0", False),
        ("xs:string", " a\n b ", " a\n b "),
        ("xs:normalizedString", " a\n b ", " a  b "),
        ("xs:token", " a\n b ", "a b"),
        ("xs:dateTime", "2003-02-27T12:00:00.000Z", "2003-02-27T12:00:00.000Z"),
        ("xs:NMTOKEN", "001", "001"),
        ("xs:string", "15", "15"),
    ],
)
def test_the_type_decides_the_value(type_: str, text: str, value: Value) -> None:
    found = read(f"<a>{text}</a>".encode(), of_type(type_)).attributes["."]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("type_", "text", "problem"),
    [
        ("xs:integer", "x", "does not fit the schema: Element 'a': 'x' is not a valid value"),
        ("xs:integer", "9223372036854775808", "`.` is 9223372036854775808; integers must fit in 64 bits"),
        ("xs:double", "NaN", "`.` is NaN; a finite 64-bit float is needed"),
        ("xs:double", "-INF", "`.` is -INF; a finite 64-bit float is needed"),
        ("xs:decimal", "9" * 400, "a finite 64-bit float is needed"),
        ("xs:boolean", "yes", "does not fit the schema"),
        ("xs:dateTime", "noon", "does not fit the schema"),
    ],
)
def test_a_text_that_has_no_value_is_refused(type_: str, text: str, problem: str) -> None:
    with pytest.raises(XmlError, match="XML document") as caught:
        read(f"<a>{text}</a>".encode(), of_type(type_))
    assert problem in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("PGMFORUM", "FORUM"), "root element is `FORUM` in namespace 'urn:roamcast:golf-forum'; the"),
        (("golf-forum", "other"), "the root element is `PGMFORUM` in namespace 'urn:roamcast:other'"),
        ((' xmlns="urn:roamcast:golf-forum"', ""), "the root element is `PGMFORUM` in no namespace"),
        (("<hole>15<", "<hole>19<"), "4: does not fit the schema: Element 'hole'"),
        (("woods", "nobody"), "3: does not fit the schema: Element 'player'"),
        (("hole>", "home>"), "4: does not fit the schema: Element 'home': This element is not expected."),
        (('id="001"', 'no="001"'), "2: does not fit the schema: Element 'PGMFORUM', attribute 'no'"),
        (("<player>woods</player>", ""), "does not fit the schema"),
        (("<hole>15</hole>", "<hole>15</hole><hole>16</hole>"), "4: `hole` occurs twice"),
    ],
)  # fmt: skip
def test_a_document_that_does_not_fit_is_refused(change: tuple[str, str], problem: str) -> None:
    text = (GOLF / "woods-at-15.xml").read_text()
    assert change[0] in text
    forum = Schema.load(GOLF / "forum.xsd")
    assert read(text.encode(), forum).attributes["hole"] == 15
    with pytest.raises(XmlError) as caught:
        read(text.replace(*change).encode(), forum)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


COMPLEX = '<xs:element name="a"><xs:complexType>{}</xs:complexType></xs:element>'
SEQUENCE = COMPLEX.format("<xs:sequence>{}</xs:sequence>")
SIMPLE = '<xs:element name="a"><xs:simpleType>{}</xs:simpleType></xs:element>'
ITSELF = '<xs:simpleType name="T"><xs:restriction base="T"/></xs:simpleType>'


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ('<xs:import namespace="urn:x" schemaLocation="http://127.0.0.1:9/x"/>', "`xs:import` is outside"),
        ('<xs:include schemaLocation="/etc/hostname"/>', "`xs:include` is outside the subset"),
        ('<xs:redefine schemaLocation="x.xsd"/>', "`xs:redefine` is outside"),
        ("", "has no global element, hence no event type"),
        (SEQUENCE.format('<xs:element name="b" type="xs:int" maxOccurs="2"/>'), "`b`: maxOccurs is '2'"),
        (COMPLEX.format('<xs:sequence maxOccurs="unbounded"/>'), "maxOccurs is 'unbounded'"),
        (SEQUENCE.format('<xs:element name="b" type="xs:int"/>' * 2), "`b`: `b` is there already"),
        (SEQUENCE.format('<xs:element name="b" type="xs:int" nillable="true"/>'), "`nillable` is outside"),
        (SEQUENCE.format('<xs:element name="b" type="xs:int" default="1"/>'), "`default` is outside"),
        (SEQUENCE.format("<xs:any/>"), "`xs:any` is outside the subset"),
        (SEQUENCE.format('<xs:element name="b"/>'), "`b`: has no type; anything could stand there"),
        (SEQUENCE.format('<xs:element name="b" type="Missing"/>'), "type 'Missing' is not in this schema"),
        (SEQUENCE.format('<xs:element name="b" type="xs:anyType"/>'), "type 'xs:anyType' is not in this"),
        (SEQUENCE.format('<xs:element name="b" type="xs:NMTOKENS"/>'), "type 'xs:NMTOKENS' is not in this"),
        (SEQUENCE.format('<xs:element ref="b"/>'), "refers to the element 'b', which is not in this schema"),
        (SEQUENCE.format('<xs:element ref="a" minOccurs="0"/>'), "its type contains itself"),
        (COMPLEX.format("<xs:anyAttribute/>"), "`xs:anyAttribute` is outside the subset"),
        (COMPLEX.format('<xs:attribute name="b"/>'), "`b`: has no type"),
        (COMPLEX.format('<xs:attribute name="b" type="xs:int" fixed="1"/>'), "`fixed` is outside"),
        (COMPLEX.format('<xs:complexContent><xs:extension base="B"/></xs:complexContent>'), "complexContent"),
        ('<xs:element name="a"><xs:complexType mixed="true"/></xs:element>', "`mixed` is outside the subset"),
        (SIMPLE.format('<xs:list itemType="xs:int"/>'), "`xs:list` is outside the subset"),
        (SIMPLE.format('<xs:union memberTypes="xs:int xs:date"/>'), "`xs:union` is outside the subset"),
        ('<xs:element name="a.b" type="xs:int"/>', "is an event type, which must have no dot"),
        (f'{ITSELF}<xs:element name="a" type="T"/>', "`T`: is a restriction of itself"),
        ('<xs:element name="a" type="xs:int"><xs:complexType/></xs:element>', "is no valid schema"),
        ('<b xmlns="urn:x"/>', "`b` is no part of XML Schema"),
    ],
)  # fmt: skip
def test_what_is_outside_the_subset_of_xml_schema_is_refused(inside: str, problem: str) -> None:
    with pytest.raises(XmlError, match=r"^schema") as caught:
        schema(inside)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_recursive_type_of_two_elements_is_refused_and_does_not_explode() -> None:
    types = "".join(
        f'<xs:complexType name="T{n}"><xs:sequence><xs:element name="x" type="T{n + 1}"/>'
        f'<xs:element name="y" type="T{n + 1}"/></xs:sequence></xs:complexType>'
        for n in range(25)
    )
    with pytest.raises(XmlError, match="more than 1024 elements and attributes"):
        schema(f'{types}<xs:complexType name="T25"/><xs:element name="a" type="T0"/>')


def test_forms_that_would_mix_namespaces_are_refused() -> None:
    element = '<xs:element name="a" type="xs:int"/>'
    with pytest.raises(XmlError, match='needs elementFormDefault="qualified"'):
        schema(element, targetNamespace="urn:x")
    with pytest.raises(XmlError, match="needs attributeFormDefault unqualified"):
        schema(element, attributeFormDefault="qualified")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"<xs:schema", "schema:1: is not well-formed"),
        (b"<schema/>", "the root element is no xs:schema"),
        (b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><a>&x;</a>", "has a <!DOCTYPE"),
        (b"<a>" * 100_000, "is not well-formed"),
        (b"<?xml version='1.0' encoding='unknown'?><a/>", "has the encoding 'unknown'; only UTF-8"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_no_schema_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(XmlError) as caught:
        Schema(text)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_schema_is_loaded_once_and_travels_to_workers(tmp_path: Path) -> None:
    path = tmp_path / "forum.xsd"
    path.write_bytes((GOLF / "forum.xsd").read_bytes())
    forum = Schema.load(path)
    assert Schema.load(path) is forum
    assert pickle.loads(pickle.dumps(forum)).types == forum.types
    path.write_bytes(path.read_bytes().replace(b"hole", b"home"))
    assert "home" in Schema.load(path).types["PGMFORUM"]
    with pytest.raises(FileError, match="cannot be read"):
        Schema.load(tmp_path / "none.xsd")
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(FileError, match="has more than 1048576 octets"):
        Schema.load(path)


@pytest.mark.parametrize("seed", range(150))
def test_a_schema_with_a_few_words_exchanged_is_a_schema_or_refused(seed: int) -> None:
    random = Random(seed)
    words = re.split(r'("[^"]*"|[\w:]+)', (GOLF / "forum.xsd").read_text())
    for _ in range(random.randint(1, 3)):
        one, other = (1 + 2 * random.randrange(len(words) // 2) for _ in range(2))
        words[one], words[other] = random.choice([(words[other], words[one]), ("", words[other])])
    answer = schema_or_line("".join(words).encode())
    if isinstance(answer, Schema):
        assert answer.types
    else:
        assert "\n" not in answer, answer


def schema_or_line(text: bytes) -> Schema | str:
    try:
        return Schema(text)
    except XmlError as error:
        return str(error)
