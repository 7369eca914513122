"""Untrusted XML as a stream: each element is yielded when it ends, and then dropped.

A document type is refused: neither format here has one, and entities can make XML expand without bound or
read other files. The parser also resolves no entity, opens no network connection and keeps libxml2's limits
on depth and size.
"""

from collections.abc import Iterator
from typing import IO, Literal, TypeAlias

from lxml import etree

from roamcast.errors import FileError
from roamcast.world.formats.text.source import damage_as_file_error

_CHUNK = 1 << 16

Event: TypeAlias = tuple[Literal["start", "end"], str, "etree._Element"]


def elements(stream: IO[bytes], where: str, *, root: str) -> Iterator[Event]:
    """`(start or end, name without namespace, element)` in document order.

    An element is complete when it ends, except for its children: those were yielded and dropped before.
    """
    parser = etree.XMLPullParser(
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    begun = False
    try:
        while True:
            with damage_as_file_error(where):
                chunk = stream.read(_CHUNK)
            if chunk:
                parser.feed(chunk)
            else:
                parser.close()
            for event, element in parser.read_events():
                assert isinstance(element, etree._Element), "only start and end were asked for"
                name = local_name(element)
                if not begun:
                    _check_root(element, name, root, where)
                    begun = True
                yield ("start" if event == "start" else "end"), name, element
                if event == "end":
                    _drop_children(element)
            if not chunk:
                return
    except etree.XMLSyntaxError as problem:
        text = str(problem.msg or problem).split("\n")[0]
        raise FileError(
            f"{where}:{problem.lineno or 1}", f"is damaged, truncated or hostile XML ({text})"
        ) from problem


def local_name(element: "etree._Element") -> str:
    """Without the namespace. Not `QName`: that refuses namespaces which the parser lets through."""
    return str(element.tag).rpartition("}")[2]


def line_number(element: "etree._Element") -> int:
    line: object = element.sourceline
    return line if isinstance(line, int) else 0


def line_of(element: "etree._Element", where: str) -> str:
    return f"{where}:{line_number(element)}"


def _check_root(element: "etree._Element", name: str, root: str, where: str) -> None:
    if element.getroottree().docinfo.internalDTD is not None:
        raise FileError(where, "has a document type (DOCTYPE); such XML is not read")
    if name != root:
        raise FileError(line_of(element, where), f"root element is {name}; expected {root}")


def _drop_children(element: "etree._Element") -> None:
    """Free what has been read. An ended element is still attached to its parent: drop its elder siblings."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
