"""XML documents as events and back.

A document becomes an event's type (the root's name), its typed attributes (one for each element and XML
attribute, named by its path below the root) and its payload (the document itself, plain or compressed).
Brokers match the attributes and never parse XML: a document is parsed once, where it is published, and again
only by an application that calls `document_of`.
"""

import math
import zlib
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from lxml import etree

from roamcast.errors import WireError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, Value
from roamcast.filter.expression import kind_of
from roamcast.filter.xpath.translation import ROOT, number_in
from roamcast.xml.reader import DOCUMENT_BYTES_MAX, XmlError, scan
from roamcast.xml.schema import Schema

_ZLIB = b"\x78"  # the first octet of what zlib writes; a document never begins so


class XmlContent(NamedTuple):
    """What to publish: `Publication(content.attributes, content.payload, type=content.type)`."""

    type: str
    attributes: dict[str, Value]
    payload: bytes


def read(
    document: bytes, schema: Schema | None = None, *, compress: bool = False, where: str = "XML document"
) -> XmlContent:
    """A document as content, or an `XmlError`.

    Without a schema types are guessed (`number_in`): what reads as a plain integer or as a decimal with a
    point is a number, everything else a text.
    """
    scanned = scan(document, where)
    if schema is not None:
        attributes = schema.values(document, scanned, where)
    else:
        attributes = {path: _guessed(text) for path, text in scanned.fields.items()}
    return XmlContent(scanned.type, attributes, packed(document) if compress else bytes(document))


def write(
    type_: str, attributes: Mapping[str, Value], schema: Schema | None = None, *, namespace: str = ""
) -> bytes:
    """The document that `read` turns into this type and these attributes; an `XmlError` if there is none.

    Attributes that are None stay out. With a schema the elements come in its order and in its namespace.
    """
    where = f"XML document {type_[:80]!r}"
    given = {path: value for path, value in attributes.items() if value is not None}
    if schema is not None:
        if type_ not in schema.types:
            raise XmlError(
                where, f"the schema has no such type; it has {', '.join(sorted(schema.types)[:8])}"
            )
        fields = schema.types[type_]
        if unknown := sorted(set(given) - set(fields)):
            raise XmlError(where, f"the schema has no {unknown[0][:80]!r} in it")
        given = {path: given[path] for path in fields if path in given}
        namespace = schema.namespace
    try:
        document = _document(type_, given, namespace)
    except ValueError as error:  # lxml's, about names and characters that XML does not allow
        raise XmlError(where, f"cannot be written: {error}") from None
    found = read(document, schema, where=where)
    _check_same(given, found, type_, where)
    return document


def event_of(
    document: bytes, publisher: int, sequence: int, schema: Schema | None = None, *, compress: bool = False
) -> Event:
    """A document as a real-time event; nodes number their events themselves, this is for tools and tests."""
    content = read(document, schema, compress=compress)
    return Event(publisher, sequence, content.attributes, content.payload, type=content.type)


def document_of(event: Event, schema: Schema | None = None) -> bytes:
    """The document that an event from the air carries, or a `WireError`.

    It is read again, and must be what the event's type and attributes say: they decided who got the event,
    and a hostile publisher could send another document beside them.
    """
    document = unpacked(event.payload)
    try:
        content = read(document, schema)
    except XmlError as error:
        raise WireError("XML payload", 0, str(error)) from None
    if content.type != event.type or not _same(content.attributes, event.attributes):
        raise WireError("XML payload", 0, "is not the document that the event's type and attributes describe")
    return document


def packed(document: bytes) -> bytes:
    """A document compressed, or as it is where that is shorter (both may travel, section 3.1)."""
    squeezed = zlib.compress(document, 9)
    return squeezed if len(squeezed) < len(document) else bytes(document)


def unpacked(payload: bytes) -> bytes:
    """The document in a payload; never unpacks more octets than a document may have."""
    if payload[:1] != _ZLIB:
        return payload
    reader = zlib.decompressobj()
    try:
        document = reader.decompress(payload[:PAYLOAD_BYTES_MAX], DOCUMENT_BYTES_MAX + 1)
    except zlib.error as error:
        raise WireError("XML payload", 0, f"cannot be decompressed: {error}") from None
    if len(document) > DOCUMENT_BYTES_MAX:
        raise WireError("XML payload", 0, f"has more than {DOCUMENT_BYTES_MAX} octets when decompressed")
    if not reader.eof or reader.unused_data:
        raise WireError("XML payload", 0, "is cut short or has octets behind its end")
    return document


def _guessed(text: str | None) -> Value:
    if text is None:
        return True  # the element is there and holds elements
    number = number_in(text)
    return text if number is None else number


def _document(type_: str, values: Mapping[str, Value], namespace: str) -> bytes:
    prefix = f"{{{namespace}}}" if namespace else ""
    root = etree.Element(prefix + type_, nsmap={None: namespace} if namespace else None)  # type: ignore[dict-item]
    elements = {ROOT: root}
    for path, value in values.items():
        above, _, last = path.rpartition("/")
        if last.startswith("@"):
            _element(above or ROOT, elements, prefix).set(last[1:], _text(value))
        else:
            element = _element(path, elements, prefix)
            if value is not True or path == ROOT or not _has_below(path, values):
                element.text = _text(value)
    document: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return document


def _element(path: str, elements: dict[str, etree._Element], prefix: str) -> etree._Element:
    if path not in elements:
        above, _, last = path.rpartition("/")
        elements[path] = etree.SubElement(_element(above or ROOT, elements, prefix), prefix + last)
    return elements[path]


def _has_below(path: str, values: Mapping[str, Value]) -> bool:
    return any(each.startswith(f"{path}/") and not each.startswith(f"{path}/@") for each in values)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number that XML Schema's decimals have")
        return format(Decimal(repr(value)), "f")  # without an exponent, which xs:decimal does not know
    return str(value)


def _check_same(given: Mapping[str, Value], found: XmlContent, type_: str, where: str) -> None:
    implied = {path: True for path, value in found.attributes.items() if value is True and path not in given}
    if found.type == type_ and _same({**given, **implied}, found.attributes):
        return
    for path, value in given.items():
        if not _same({path: value}, {path: found.attributes.get(path)}):
            read_as = repr(found.attributes.get(path))[:40]
            raise XmlError(
                where,
                f"`{path[:80]}` is {repr(value)[:40]}, which is read back as {read_as}; a schema gives types",
            )
    raise XmlError(where, "would not be read back as it was given")


def _same(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Equal in value and type: in Python `True == 1`."""
    return one.keys() == other.keys() and all(
        kind_of(value) is kind_of(other[path]) and value == other[path] for path, value in one.items()
    )
