"""A schema: which event types there are, of what type each path is, and which documents are valid.

lxml's `XMLSchema` validates; `definition.py` reads from the schema what an event's attributes need. A schema
is the user's own file: it is read as carefully as a document (no DTD, nothing fetched), but its patterns are
trusted and run as they are.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn
from xml.parsers import expat

from lxml import etree

from roamcast.event import Value
from roamcast.filter.expression import INTEGER_MAX, INTEGER_MIN
from roamcast.filter.xpath.translation import FieldKind
from roamcast.xml.definition import Field, TextContent, definition_of, spaced
from roamcast.xml.reader import Scanned, XmlError, careful_parser, load_octets

SCHEMA_BYTES_MAX = 1 << 20


class Schema:
    """One schema. Two schemas are equal only if they are the same object."""

    namespace: str
    types: Mapping[str, Mapping[str, Field]]  # event type, path, in the schema's order
    shapes: Mapping[str, Mapping[str, FieldKind]]  # the same for `Filter.xpath`

    def __init__(self, text: bytes, where: str = "schema") -> None:
        root = _parsed_schema(text, where)
        definition = definition_of(root, where)
        self._source = (text, where)
        self._validator = _compiled(root, where)
        self.namespace = definition.namespace
        self.types = MappingProxyType(definition.types)
        self.shapes = MappingProxyType(
            {
                name: {path: field.content.kind for path, field in fields.items()}
                for name, fields in definition.types.items()
            }
        )

    @classmethod
    def load(cls, path: Path) -> "Schema":
        """From an .xsd file. The same file, unchanged, gives the same schema again."""
        return _loaded(load_octets(path, SCHEMA_BYTES_MAX), str(path))

    def __reduce__(self) -> tuple[Callable[[bytes, str], "Schema"], tuple[bytes, str]]:
        return Schema, self._source  # validators do not pickle

    def values(self, document: bytes, scanned: Scanned, where: str) -> dict[str, Value]:
        """The typed attributes of a document that was scanned; `XmlError` unless it is valid."""
        if scanned.type not in self.types or scanned.namespace != self.namespace:
            raise XmlError(where, f"the root element is {_braced(scanned)}; the schema has {self._roots()}")
        self._validate(document, where)
        fields = self.types[scanned.type]
        # The validator refuses unknown paths. Only the root may be missing from the schema's fields: an empty
        # root looks like a text to a scan without the schema.
        return {
            path: _value(path, fields[path], text, where)
            for path, text in scanned.fields.items()
            if path in fields
        }

    def _validate(self, document: bytes, where: str) -> None:
        tree = _parsed(document, where)
        if not self._validator.validate(tree):
            error = self._validator.error_log[0]  # type: ignore[index]
            problem = " ".join(error.message.replace(f"{{{self.namespace}}}", "").split())
            raise XmlError(f"{where}:{error.line}", f"does not fit the schema: {problem[:300]}")

    def _roots(self) -> str:
        names = ", ".join(sorted(self.types)[:8])
        return f"{names} in namespace {self.namespace!r}" if self.namespace else f"{names} in no namespace"


@lru_cache(maxsize=16)
def _loaded(text: bytes, where: str) -> Schema:
    return Schema(text, where)


# Everything that could fetch or expand is off. Documents are scanned before they are parsed here.
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
)


def _parsed_schema(text: bytes, where: str) -> etree._Element:
    _check_prolog(text, where)
    return _parsed(text, where)


def _parsed(text: bytes, where: str) -> etree._Element:
    """Parse a text that expat has accepted; libxml2 may still refuse a rare name or namespace."""
    try:
        return etree.fromstring(text, _PARSER)
    except etree.XMLSyntaxError as error:
        line, _ = error.position
        raise XmlError(f"{where}:{line}", f"is not well-formed: {' '.join(str(error.msg).split())}") from None


def _check_prolog(text: bytes, where: str) -> None:
    """Before lxml sees it: no DTD, UTF-8, well-formed."""

    def refuse(problem: str) -> NoReturn:
        raise XmlError(where, problem)

    try:
        careful_parser(refuse).Parse(text, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise XmlError(f"{where}:{error.lineno}", f"is not well-formed: {problem}") from None


def _compiled(root: etree._Element, where: str) -> etree.XMLSchema:
    try:
        return etree.XMLSchema(root)
    except etree.XMLSchemaParseError as error:
        raise XmlError(where, f"is no valid schema: {' '.join(str(error).split())[:300]}") from None


def _value(path: str, field: Field, text: str | None, where: str) -> Value:
    if text is None or field.content is TextContent.ELEMENTS:
        return True  # the element is there
    match field.content:
        case TextContent.TEXT:
            return spaced(text, field.spaces)
        case TextContent.BOOLEAN:
            return text.strip() in ("true", "1")
        case TextContent.INTEGER:
            # More digits than this are out of range, unless zeros lead.
            whole = int(text) if len(text) <= 100 else INTEGER_MAX + 1
            if not INTEGER_MIN <= whole <= INTEGER_MAX:
                raise XmlError(where, f"`{path}` is {text.strip()[:40]}; integers must fit in 64 bits")
            return whole
        case TextContent.REAL:
            real = float(text)
            if not -_LARGEST <= real <= _LARGEST:
                raise XmlError(where, f"`{path}` is {text.strip()[:40]}; a finite 64-bit float is needed")
            return real


_LARGEST = 1.7976931348623157e308


def _braced(scanned: Scanned) -> str:
    name = f"`{scanned.type}`"
    return (
        f"{name} in namespace {scanned.namespace[:80]!r}" if scanned.namespace else f"{name} in no namespace"
    )
