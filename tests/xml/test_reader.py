"""Documents that are read, and documents that are refused: early, cheaply, in one line."""

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import FileError
from roamcast.xml import DOCUMENT_BYTES_MAX, XmlError, load_document, read
from roamcast.xml.reader import DEPTH_MAX, Scanned, scan

MEGABYTES_10 = 10 * 1024 * 1024


def test_a_document_is_its_root_and_its_paths_in_order() -> None:
    document = b"""<?xml version="1.0" encoding="utf-8"?><!-- of one day -->
        <alarm xmlns="urn:x" id="007"><name>B &amp; C</name>
          <place wing="west"><floor>3</floor><near><name/></near></place><empty/>
          <note><![CDATA[<b>]]> and <!-- not this -->more</note></alarm>"""
    assert scan(document) == Scanned(
        "alarm",
        "urn:x",
        {
            "@id": "007",
            "name": "B & C",
            "place": None,
            "place/@wing": "west",
            "place/floor": "3",
            "place/near": None,
            "place/near/name": "",
            "empty": "",
            "note": "<b> and more",
        },
    )
    assert list(scan(document).fields)[:3] == ["@id", "name", "place"]


def test_a_root_without_elements_has_a_value_of_its_own() -> None:
    assert scan(b"<ping id='1'> now </ping>").fields == {".": " now ", "@id": "1"}
    assert scan(b"<ping/>").fields == {".": ""}
    assert scan(b"<p:ping xmlns:p='urn:x'><p:a/></p:ping>") == Scanned("ping", "urn:x", {"a": ""})


LAUGHS = b"<!DOCTYPE a [<!ENTITY l0 'ha'>%s]><a>&l30;</a>" % b"".join(
    b"<!ENTITY l%d '&l%d;&l%d;'>" % (number, number - 1, number - 1) for number in range(1, 31)
)
QUADRATIC = b"<!DOCTYPE a [<!ENTITY l '%s'>]><a>%s</a>" % (b"x" * 30_000, b"&l;" * 5_000)
FROM_FILE = b"<!DOCTYPE a [<!ENTITY l SYSTEM 'file:///etc/hostname'>]><a>&l;</a>"
FROM_HOST = b"<!DOCTYPE a [<!ENTITY l SYSTEM 'http://127.0.0.1:9/l'>]><a>&l;</a>"
FROM_DTD = b"<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/a.dtd'><a/>"
PARAMETER = b"<!DOCTYPE a [<!ENTITY % p SYSTEM 'http://127.0.0.1:9/p'>%p;]><a/>"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"", "is not well-formed: no element found"),
        (b"no XML", "is not well-formed: syntax error"),
        (LAUGHS, ":1: has a <!DOCTYPE"),
        (QUADRATIC, ":1: has a <!DOCTYPE"),
        (FROM_FILE, "has a <!DOCTYPE"),
        (FROM_HOST, "has a <!DOCTYPE"),
        (FROM_DTD, "has a <!DOCTYPE"),
        (PARAMETER, "has a <!DOCTYPE"),
        (b"<a>&undefined;</a>", "is not well-formed: undefined entity"),
        (b"<a>" * (MEGABYTES_10 // 3), f"octets; at most {DOCUMENT_BYTES_MAX} are allowed"),
        (b"<a b='" + b"x" * MEGABYTES_10 + b"'/>", f"octets; at most {DOCUMENT_BYTES_MAX} are allowed"),
        (b"<a>" * (DOCUMENT_BYTES_MAX // 3), f"nested more than {DEPTH_MAX} deep"),
        (b"<r>" + b"".join(b"<a%d/>" % n for n in range(5_000)), "more than 256 elements and attributes"),
        (b"<r " + b" ".join(b"a%d=''" % n for n in range(5_000)) + b"/>", "more than 256 elements and"),
        (b"<a b='" + b"x" * 50_000 + b"'/>", "`b` has 50000 characters; at most 4096 are allowed"),
        (b"<a><b>" + b"x" * 50_000 + b"</b></a>", "`b` has 50000 characters; at most 4096 are allowed"),
        (b"<a" + b"b" * 50_000 + b"/>", "the root's name has 50001 characters; at most 128"),
        (b"<a><" + b"b" * 50_000 + b"/></a>", "has more than 128 characters"),
        (b"<a><b><c></b></c></a>", ":1: is not well-formed: mismatched tag"),
        (b"<a>\n<b>one", ":2: is not well-formed: no element found"),
        (b"<a/><a/>", "is not well-formed: junk after document element"),
        (b"<a>\xff</a>", "is not well-formed: not well-formed (invalid token)"),
        (b"<a>\0</a>", "is not well-formed"),
        (b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>", "encoding 'ISO-8859-1'; only UTF-8"),
        (b"<?xml version='1.0' encoding='UTF-7'?><a/>", "encoding 'UTF-7'; only UTF-8 is allowed"),
        ("<a/>".encode("utf-16"), "is UTF-16; only UTF-8 is allowed"),
        ("<a/>".encode("utf-16-le"), "is UTF-16; only UTF-8 is allowed"),
        ("<a/>".encode("utf-32"), "is UTF-16; only UTF-8 is allowed"),
        (b"<?xml version='1.1'?><a/>", "is XML 1.1; only XML 1.0 is allowed"),
        (b"<a><b/>\n<b/></a>", ":2: `b` occurs twice; an event's attribute has one value"),
        (b"<a><b/><c><b/><b/></c></a>", "`c/b` occurs twice"),
        (b"<a b='1' b='2'/>", "is not well-formed: duplicate attribute"),
        (b"<a>text<b/></a>", "`a` has text beside elements"),
        (b"<a><b/>text</a>", "`a` has text beside elements"),
        (b"<a><b><c/>text<d/></b></a>", "`b` has text beside elements"),
        (b"<a.b/>", "the root element 'a.b' names the event's type, which must have no dot"),
        (b"<a xmlns='urn:x'><b xmlns='urn:y'/></a>", "element 'b' is of another namespace than the root"),
        (b"<a><b:c xmlns:b='urn:b'/></a>", "element 'c' is of another namespace than the root"),
        (b"<a><b:c/></a>", "is not well-formed: unbound prefix"),
        (
            b"<a xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' xsi:schemaLocation='x y'/>",
            "attribute 'schemaLocation' has a prefix",
        ),
        (b"<a xml:lang='en'/>", "attribute 'lang' has a prefix"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_what_is_no_event_is_refused_in_one_line(document: bytes, problem: str) -> None:
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(XmlError) as caught:
        read(document)
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert problem in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
    assert seconds < 0.5  # some milliseconds at most; the rest is for a busy machine
    assert peak < 2_000_000


def test_a_file_is_never_read_beyond_what_is_allowed(tmp_path: Path) -> None:
    large = tmp_path / "large.xml"
    large.write_bytes(b"<a>" * (MEGABYTES_10 // 3))
    tracemalloc.start()
    with pytest.raises(FileError, match=f"has more than {DOCUMENT_BYTES_MAX} octets"):
        load_document(large)
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()
    with pytest.raises(FileError, match="cannot be read: No such file"):
        load_document(tmp_path / "none.xml")
    with pytest.raises(FileError, match="cannot be read"):
        load_document(tmp_path / "a\0b.xml")


PARTS = [
    *(b"<a>", b"</a>", b"<b c='1'>", b"</b>", b"<d/>", b"text", b" ", b"&amp;", b"&x;", b"<!DOCTYPE a>"),
    *(
        b"<![CDATA[",
        b"]]>",
        b"<!--",
        b"-->",
        b"<?p i?>",
        b"<?xml version='1.0'?>",
        b"\xff",
        b"\0",
        b"\xc3\xa4",
    ),
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join) | st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_octets_are_a_document_or_one_line(octets: bytes) -> None:
    answer = scanned_or_line(octets)
    if isinstance(answer, Scanned):
        assert answer.type and len(answer.fields) <= 256
    else:
        assert "\n" not in answer


def scanned_or_line(octets: bytes) -> Scanned | str:
    try:
        return scan(octets)
    except XmlError as error:
        return str(error)
