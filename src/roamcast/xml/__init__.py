"""XML events, typed by a schema and matched by XPath (Pub/Sub ODMRP, sections 3.1 and 3.2).

To read in this order:

- `reader.py`: one pass over a document that trusts nothing; what an event's document may hold.
- `definition.py`: the subset of XML Schema, and the types of values. `schema.py`: validation with it.
- `content.py`: documents to event content and back, compressed or not.

The subscription language is `Filter.xpath` (`filter/xpath/`); `docs/use/xml.md` is for users.

Left out: repeated elements, mixed content, several namespaces in a document, DTDs, XML 1.1, encodings
other than UTF-8, dates as anything but texts.
"""

from roamcast.xml.content import XmlContent, document_of, event_of, read, write
from roamcast.xml.definition import Field, TextContent
from roamcast.xml.reader import DOCUMENT_BYTES_MAX, XmlError, load_document
from roamcast.xml.schema import Schema

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "Field",
    "Schema",
    "TextContent",
    "XmlContent",
    "XmlError",
    "document_of",
    "event_of",
    "load_document",
    "read",
    "write",
]
