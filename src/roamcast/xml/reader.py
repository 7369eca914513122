"""Reads an XML document in one pass: no tree, every bound checked during the pass.

Documents come from other people's programs, so none is trusted. The length is checked first, then expat's
callbacks refuse the first element that is too many, too deep or too long. A DTD is refused at `<!DOCTYPE`, so
there are no entities beyond the five of XML: no entity bombs, no references to files or hosts. Nothing is
ever fetched.

An event's attributes have one value each, so a document in which a path occurs twice is no event; nor is one
with text beside elements. Refused as well, because two readers might differ about them: other encodings than
UTF-8, XML 1.1, elements of several namespaces, attributes with a prefix (`xsi:schemaLocation` would make a
validator fetch what the sender names).
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from roamcast.errors import FileError, InputError
from roamcast.event import ATTRIBUTES_MAX, NAME_LENGTH_MAX, PAYLOAD_BYTES_MAX, TEXT_LENGTH_MAX
from roamcast.filter.xpath.translation import ROOT, joined_path

DOCUMENT_BYTES_MAX = PAYLOAD_BYTES_MAX  # a document travels as the payload of its event
DEPTH_MAX = 32  # nested elements; chosen by us


class XmlError(InputError):
    """A document or schema that is not as it must be. `where` is its name and line."""


class Scanned(NamedTuple):
    """The content of a document, before types are assigned."""

    type: str  # the root's local name
    namespace: str  # of all elements; empty for none
    fields: dict[
        str, str | None
    ]  # by path below the root, in document order; None: the element holds elements


def scan(document: bytes, where: str = "XML document") -> Scanned:
    """Read a document, or raise an `XmlError` at the first thing that is not allowed."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise XmlError(where, f"has {len(document)} octets; at most {DOCUMENT_BYTES_MAX} are allowed")
    return _Scan(where).read(document)


def load_document(path: Path) -> bytes:
    """A document from a file; never reads more than a document may have."""
    return load_octets(path, DOCUMENT_BYTES_MAX)


def load_octets(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            octets = file.read(most + 1)
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a name with U+0000
        raise FileError(repr(str(path)), f"cannot be read: {error}") from None
    if len(octets) > most:
        raise FileError(str(path), f"has more than {most} octets, the most that is allowed")
    return octets


def careful_parser(refuse: Callable[[str], NoReturn]) -> expat.XMLParserType:
    """An expat parser that refuses all but XML 1.0 in UTF-8 without a DTD. Names are `namespace name`."""

    def on_declaration(version: str, encoding: str | None, _standalone: int) -> None:
        if version != "1.0":
            refuse(f"is XML {version[:20]}; only XML 1.0 is allowed")
        if encoding is not None and encoding.upper() != "UTF-8":
            refuse(f"has the encoding {encoding[:40]!r}; only UTF-8 is allowed")

    def on_doctype(*_: object) -> None:
        refuse("has a <!DOCTYPE …>, which is not allowed: no DTD, no entities")

    parser = expat.ParserCreate("UTF-8", " ")  # overrules the declaration, which is then checked
    parser.XmlDeclHandler = on_declaration
    parser.StartDoctypeDeclHandler = on_doctype
    return parser


class _Scan:
    """One pass over one document."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._type = ""
        self._namespace = ""
        self._fields: dict[str, str | None] = {}
        self._open: list[str] = []  # the paths of the elements that are open at this point
        self._has_elements: list[bool] = []  # for each of them
        self._text: list[str] = []
        self._parser = parser = careful_parser(self._refuse)
        parser.ordered_attributes = True
        parser.buffer_text = True
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._text.append

    def read(self, document: bytes) -> Scanned:
        if document[:2] in (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<"):
            raise XmlError(self._where, "is UTF-16; only UTF-8 is allowed")
        try:
            self._parser.Parse(document, True)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            where = f"{self._where}:{error.lineno}"
            raise XmlError(where, f"is not well-formed: {problem} (column {error.offset + 1})") from None
        finally:
            del self._parser  # it refers to our methods: a cycle that only the garbage collector would free
        return Scanned(self._type, self._namespace, self._fields)

    def _on_start(self, name: str, attributes: list[str]) -> None:
        namespace, _, local = name.rpartition(" ")
        path = self._inside(namespace, local) if self._open else self._as_root(namespace, local)
        self._add(path, None)
        for at in range(0, len(attributes), 2):
            self._add_attribute(path, attributes[at], attributes[at + 1])
        self._open.append(path)
        self._has_elements.append(False)
        self._text.clear()

    def _as_root(self, namespace: str, local: str) -> str:
        if "." in local:
            self._refuse(f"the root element {local[:80]!r} names the event's type, which must have no dot")
        if len(local) > NAME_LENGTH_MAX:
            self._refuse(
                f"the root's name has {len(local)} characters; at most {NAME_LENGTH_MAX} are allowed"
            )
        self._type, self._namespace = local, namespace
        return ROOT

    def _inside(self, namespace: str, local: str) -> str:
        if len(self._open) >= DEPTH_MAX:
            self._refuse(f"elements are nested more than {DEPTH_MAX} deep")
        if namespace != self._namespace:
            self._refuse(f"element {local[:80]!r} is of another namespace than the root")
        self._check_blank()
        self._has_elements[-1] = True
        return joined_path(self._open[-1], local)

    def _add_attribute(self, path: str, name: str, value: str) -> None:
        if " " in name:
            local = name.rpartition(" ")[2]
            self._refuse(f"attribute {local[:80]!r} has a prefix; attributes with one are not allowed")
        self._check_length(name, value)
        self._add(joined_path(path, f"@{name}"), value)

    def _add(self, path: str, value: str | None) -> None:
        if len(path) > NAME_LENGTH_MAX:
            self._refuse(f"the path {path[:40] + '…'!r} has more than {NAME_LENGTH_MAX} characters")
        if path in self._fields:
            self._refuse(f"`{path}` occurs twice; an event's attribute has one value")
        if len(self._fields) >= ATTRIBUTES_MAX:
            self._refuse(f"has more than {ATTRIBUTES_MAX} elements and attributes")
        self._fields[path] = value

    def _on_end(self, _name: str) -> None:
        path = self._open[-1]
        if not self._has_elements.pop():
            text = "".join(self._text)
            self._check_length(path, text)
            self._fields[path] = text
        else:
            self._check_blank()
            if path == ROOT:
                del self._fields[ROOT]  # a root that holds elements has no value, and every document has one
        self._open.pop()
        self._text.clear()

    def _check_blank(self) -> None:
        """No text beside elements, except white space for indentation."""
        if "".join(self._text).strip(" \t\r\n"):
            path = self._open[-1]
            self._refuse(f"`{self._type if path == ROOT else path}` has text beside elements")

    def _check_length(self, name: str, text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            self._refuse(f"`{name[:80]}` has {len(text)} characters; at most {TEXT_LENGTH_MAX} are allowed")

    def _refuse(self, problem: str) -> NoReturn:
        raise XmlError(f"{self._where}:{self._parser.CurrentLineNumber}", problem)
