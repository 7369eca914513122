"""Encrypted events (Chapar, section 4.2, *Lookup process*): matched by their identifier alone.

A sealed event has its EID in place of its attributes (`wire/sealed_event.py`), or travels in a message that
carries its EID (`publish_sealed`). Brokers look it up by that. The exact filter needs the clear event, so it
runs on the subscriber's node, after `ContentReader` has opened the event. An event that this node cannot open
is taken as it is if it has the form of `wire/sealed_event.py`, so only subscribers of sealed events get it.
Otherwise it is dropped. Keys and ciphers are not decided here: `sealing/content.py` is one `ContentReader`.
"""

from typing import Protocol

from roamcast.event import Event
from roamcast.wire.sealed_event import is_sealed


class ContentReader(Protocol):
    def open(self, sealed: Event) -> Event | None:
        """The clear event with the same publisher and sequence; None for one that is not ours to read."""
        ...


def opened(event: Event, sealed: bytes, opener: ContentReader | None) -> Event | None:
    """The event as applications may see it; None where it cannot be read."""
    if not sealed and not is_sealed(event):
        return event
    clear = opener.open(event) if opener is not None else None
    if clear is not None and clear.id == event.id:
        return clear
    return event if is_sealed(event) else None
