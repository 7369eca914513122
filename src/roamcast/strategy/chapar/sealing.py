"""Encrypted events (Chapar, section 4.2, *Lookup process*): matched by their identifier alone.

A sealed event has its EID in place of its attributes (`wire/sealed_event.py`), or travels in a message that
carries its EID (`publish_sealed`). Brokers look it up by that; the exact filter cannot be tried before the
event is opened, so it runs on the subscriber's node, after `ContentReader` has turned the sealed event into
the clear one. An event that nobody here can open is taken as it is where it describes itself, so only who
asks for sealed events gets it; else it is dropped. What sealing means (keys, ciphers) is not decided here:
`sealing/content.py` is one way, and an `ContentReader`.
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
