"""What a schema defines: for each event type its paths and the type of each.

XML Schema is large; an event needs little of it. Supported are global and local elements, complex types of
`sequence`, `all` and `choice` or with simple content, attributes, and simple types by restriction. All else
is refused with name and line, because an event's attributes cannot express it: repetition (`maxOccurs`),
lists and unions, mixed content, wildcards, recursion, `nillable`, defaults that only a validator would see,
extension of complex types; and `import` and `include`, which would fetch files.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, NoReturn

from lxml import etree

from roamcast.filter.xpath.translation import ROOT, FieldKind, joined_path
from roamcast.xml.reader import DEPTH_MAX, XmlError

XSD = "http://www.w3.org/2001/XMLSchema"
FIELDS_MAX = 1024  # of one event type; chosen by us


class Spaces(Enum):
    """What a type does to white space (XML Schema part 2, section 4.3.6)."""

    PRESERVE = "preserve"
    REPLACE = "replace"
    COLLAPSE = "collapse"


class TextContent(Enum):
    """How an element's or attribute's text becomes a value."""

    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    ELEMENTS = "elements"

    @property
    def kind(self) -> FieldKind:
        return FieldKind.NUMBER if self in (TextContent.INTEGER, TextContent.REAL) else FieldKind(self.value)


class Field(NamedTuple):
    """One element or XML attribute of an event type."""

    content: TextContent
    spaces: Spaces = Spaces.COLLAPSE
    enumeration: tuple[str, ...] = ()  # the texts allowed, where the type lists them


_INTEGERS = """integer nonPositiveInteger negativeInteger long int short byte nonNegativeInteger unsignedLong
    unsignedInt unsignedShort unsignedByte positiveInteger"""
# Dates and times stay texts: XPath 1.0 has no other way to compare them.
_TEXTS = """token language NMTOKEN Name NCName ID IDREF anyURI QName dateTime date time duration gYear
    gYearMonth gMonth gMonthDay gDay hexBinary base64Binary"""
BUILT_IN: dict[str, Field] = {
    **{name: Field(TextContent.INTEGER) for name in _INTEGERS.split()},
    **{name: Field(TextContent.REAL) for name in ("decimal", "double", "float")},
    **{name: Field(TextContent.TEXT) for name in _TEXTS.split()},
    "boolean": Field(TextContent.BOOLEAN),
    "string": Field(TextContent.TEXT, Spaces.PRESERVE),
    "normalizedString": Field(TextContent.TEXT, Spaces.REPLACE),
}


class Definition(NamedTuple):
    """The content of a schema, without its validator."""

    namespace: str  # of all elements; empty for none
    types: dict[str, dict[str, Field]]  # event type, path, in the schema's order


def definition_of(root: etree._Element, where: str) -> Definition:
    """Read a parsed schema; an `XmlError` for what is outside the subset."""
    return _Reading(root, where).read()


class _Reading:
    """The state while one schema is read."""

    def __init__(self, root: etree._Element, where: str) -> None:
        self._where = where
        self._root = root
        self._namespace = str(root.get("targetNamespace") or "")
        self._elements: dict[str, etree._Element] = {}
        self._complex: dict[str, etree._Element] = {}
        self._simple: dict[str, etree._Element] = {}

    def read(self) -> Definition:
        if self._root.tag != f"{{{XSD}}}schema":
            self._refuse(self._root, "the root element is no xs:schema")
        self._check_forms()
        for child, name in self._children(self._root):
            tables = {"element": self._elements, "complexType": self._complex, "simpleType": self._simple}
            if name not in tables:
                self._refuse_part(child, name)
            tables[name][str(child.get("name"))] = child
        if not self._elements:
            self._refuse(self._root, "has no global element, hence no event type")
        return Definition(
            self._namespace, {name: self._event_type(name, each) for name, each in self._elements.items()}
        )

    def _check_forms(self) -> None:
        if self._namespace and self._root.get("elementFormDefault") != "qualified":
            self._refuse(self._root, 'needs elementFormDefault="qualified": an event is of one namespace')
        if self._root.get("attributeFormDefault", "unqualified") != "unqualified":
            self._refuse(self._root, "needs attributeFormDefault unqualified: attributes have no prefix")

    def _event_type(self, name: str, declaration: etree._Element) -> dict[str, Field]:
        if "." in name:
            self._refuse(declaration, f"the global element {name!r} is an event type, which must have no dot")
        fields: dict[str, Field] = {}
        self._element(declaration, ROOT, fields, ())
        if fields[ROOT].content is TextContent.ELEMENTS:
            del fields[ROOT]  # no information: every document has a root
        return fields

    def _element(
        self,
        declaration: etree._Element,
        path: str,
        fields: dict[str, Field],
        within: tuple[etree._Element, ...],
    ) -> None:
        self._check_attributes(declaration, "name", "type", "minOccurs", "maxOccurs")
        definition = self._definition(declaration, "element")
        if isinstance(definition, Field):
            self._add(declaration, path, definition, fields)
            return
        if definition in within or len(within) >= DEPTH_MAX:
            self._refuse(declaration, "its type contains itself; an event is of bounded depth")
        self._complex_type(definition, path, fields, (*within, definition))

    def _complex_type(
        self,
        definition: etree._Element,
        path: str,
        fields: dict[str, Field],
        within: tuple[etree._Element, ...],
    ) -> None:
        self._check_attributes(definition, "name")
        self._add(definition, path, Field(TextContent.ELEMENTS), fields)
        for child, name in self._children(definition):
            match name:
                case "sequence" | "all" | "choice":
                    self._group(child, path, fields, within)
                case "attribute":
                    self._attribute(child, path, fields)
                case "simpleContent":
                    self._simple_content(child, path, fields)
                case _:
                    self._refuse_part(child, name)

    def _group(
        self, group: etree._Element, path: str, fields: dict[str, Field], within: tuple[etree._Element, ...]
    ) -> None:
        self._check_attributes(group, "minOccurs", "maxOccurs")
        for child, name in self._children(group):
            if name in ("sequence", "all", "choice"):
                self._group(child, path, fields, within)
            elif name == "element":
                named = self._referred(child)
                self._element(named, joined_path(path, str(named.get("name"))), fields, within)
            else:
                self._refuse_part(child, name)

    def _referred(self, declaration: etree._Element) -> etree._Element:
        reference = declaration.get("ref")
        if reference is None:
            return declaration
        self._check_attributes(declaration, "ref", "minOccurs", "maxOccurs")
        namespace, name = self._qualified(declaration, str(reference))
        if namespace != self._namespace or name not in self._elements:
            self._refuse(declaration, f"refers to the element {reference!r}, which is not in this schema")
        return self._elements[name]

    def _simple_content(self, part: etree._Element, path: str, fields: dict[str, Field]) -> None:
        for extension, name in self._children(part):
            if name != "extension":
                self._refuse_part(extension, name)
            self._check_attributes(extension, "base")
            base = self._named(extension, str(extension.get("base")))
            if not isinstance(base, Field):
                self._refuse(extension, "extends a complex type; allowed is a simple one")
            fields[path] = base
            for attribute, kind in self._children(extension):
                if kind != "attribute":
                    self._refuse_part(attribute, kind)
                self._attribute(attribute, path, fields)

    def _attribute(self, declaration: etree._Element, path: str, fields: dict[str, Field]) -> None:
        self._check_attributes(declaration, "name", "type", "use")
        if declaration.get("use") == "prohibited":
            self._refuse(declaration, "a prohibited attribute is outside the subset; leave it out")
        definition = self._definition(declaration, "attribute")
        assert isinstance(definition, Field), "XML Schema gives attributes simple types only"
        self._add(declaration, joined_path(path, f"@{declaration.get('name')}"), definition, fields)

    def _definition(self, declaration: etree._Element, what: str) -> Field | etree._Element:
        """The type of an element or attribute: simple as a field, complex as its definition."""
        named = declaration.get("type")
        if named is not None:
            found = self._named(declaration, str(named))
            if what == "attribute" and not isinstance(found, Field):
                self._refuse(declaration, f"{named!r} is no simple type")
            return found
        for child, name in self._children(declaration):
            if name == "simpleType":
                return self._simple_type(child, ())
            if name == "complexType" and what == "element":
                return child
            self._refuse_part(child, name)
        return self._refuse(declaration, "has no type; anything could stand there")

    def _named(
        self, user: etree._Element, name: str, within: tuple[etree._Element, ...] = ()
    ) -> Field | etree._Element:
        namespace, local = self._qualified(user, name)
        if namespace == XSD and local in BUILT_IN:
            return BUILT_IN[local]
        if namespace == self._namespace and local in self._simple:
            return self._simple_type(self._simple[local], within)
        if namespace == self._namespace and local in self._complex:
            return self._complex[local]
        return self._refuse(user, f"type {name!r} is not in this schema, or outside the subset of XML Schema")

    def _simple_type(self, definition: etree._Element, within: tuple[etree._Element, ...]) -> Field:
        if definition in within:
            self._refuse(definition, "is a restriction of itself")
        for part, name in self._children(definition):
            if name != "restriction":
                self._refuse_part(part, name)  # list and union: one attribute, several values or types
            return self._restricted(part, (*within, definition))
        return self._refuse(definition, "is empty; allowed is a restriction")

    def _restricted(self, part: etree._Element, within: tuple[etree._Element, ...]) -> Field:
        facets = list(self._children(part))
        base_name = part.get("base")
        if base_name is not None:
            base = self._named(part, str(base_name), within)
        elif facets and facets[0][1] == "simpleType":
            base = self._simple_type(facets.pop(0)[0], within)
        else:
            self._refuse(part, "has no base")
        if not isinstance(base, Field):
            self._refuse(part, f"{base_name!r} is no simple type")
        for facet, name in facets:
            if name == "whiteSpace" and facet.get("value") in [spaces.value for spaces in Spaces]:
                base = base._replace(spaces=Spaces(facet.get("value")))  # another value is no valid schema
        listed = tuple(
            spaced(str(facet.get("value")), base.spaces) for facet, name in facets if name == "enumeration"
        )
        return base._replace(enumeration=listed) if listed else base

    def _add(self, declaration: etree._Element, path: str, field: Field, fields: dict[str, Field]) -> None:
        if path in fields:
            self._refuse(declaration, f"`{path}` is there already; an event's attribute has one value")
        if len(fields) >= FIELDS_MAX:
            self._refuse(declaration, f"an event type has more than {FIELDS_MAX} elements and attributes")
        fields[path] = field

    def _children(self, parent: etree._Element) -> Iterator[tuple[etree._Element, str]]:
        """What is below, without annotations and comments; the names are those of XML Schema."""
        for child in parent:
            if not isinstance(child.tag, str):
                continue
            namespace, _, name = child.tag.removeprefix("{").rpartition("}")
            if namespace != XSD:
                self._refuse(child, f"`{name}` is no part of XML Schema")
            if name != "annotation":
                yield child, name

    def _check_attributes(self, part: etree._Element, *allowed: str) -> None:
        for attribute, value in part.attrib.items():
            name = str(attribute)
            if name == "maxOccurs" and value != "1":
                self._refuse(
                    part, f"maxOccurs is {str(value)!r}; allowed is 1: an event's attribute has one value"
                )
            if name in allowed or name == "id" or (name in _OFF_BY_DEFAULT and value in ("false", "0")):
                continue
            self._refuse(part, f"`{name}` is outside the subset of XML Schema")

    def _qualified(self, user: etree._Element, name: str) -> tuple[str, str]:
        prefix, _, local = name.strip().rpartition(":")
        return str(user.nsmap.get(prefix or None) or ""), local

    def _refuse_part(self, part: etree._Element, name: str) -> NoReturn:
        self._refuse(part, f"`xs:{name}` is outside the subset of XML Schema")

    def _refuse(self, part: etree._Element, problem: str) -> NoReturn:
        name = part.get("name")
        subject = f"`{str(name)[:80]}`: " if name is not None else ""
        raise XmlError(f"{self._where}:{part.sourceline}", f"{subject}{problem}")


_OFF_BY_DEFAULT = ("nillable", "abstract", "mixed")


def spaced(text: str, spaces: Spaces) -> str:
    """A text after the white-space rule of its type."""
    match spaces:
        case Spaces.PRESERVE:
            return text
        case Spaces.REPLACE:
            return text.translate(_BLANKS)
        case Spaces.COLLAPSE:
            return " ".join(part for part in text.translate(_BLANKS).split(" ") if part)


_BLANKS = str.maketrans("\t\r\n", "   ")
