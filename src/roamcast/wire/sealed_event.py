"""The form of an event whose content only its readers can see (Chapar, section 4.2, *encrypted events*).

It is an ordinary event of the type `SEALED_TYPE` with one attribute, `IDENTIFIER`: the event identifier (EID)
in hexadecimal, by which brokers match it without reading it. Its payload is the ciphertext. Any strategy
forwards it; `sealing/content.py` makes and opens it.
"""

from roamcast.event import Event

SEALED_TYPE = "roamcast.sealed"
IDENTIFIER = "eid"


def is_sealed(event: Event) -> bool:
    return event.type == SEALED_TYPE


def identifier_of(event: Event) -> bytes:
    """The EID of a sealed event; empty if it has none, which only a filter for everything selects."""
    text = event.attributes.get(IDENTIFIER)
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""
