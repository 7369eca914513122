"""Encrypted events (Chapar, section 4.2, *Lookup process*): matched by their identifier alone.

A sealed event travels as an `Event` without topic, type and attributes, whose payload is the ciphertext, in
a message that carries its EID. Brokers look it up by that; the exact filter cannot be tried before the
event is opened, so it runs on the subscriber's node, after `Opener` has turned the sealed event into
the clear one. A node that cannot open it drops it. What sealing means (keys, ciphers) is not decided here.
"""

from typing import Protocol

from roamcast.event import Event


class Opener(Protocol):
    def open(self, sealed: Event) -> Event | None:
        """The clear event with the same publisher and sequence; None for one that is not ours to read."""
        ...


def opened(event: Event, sealed: bytes, opener: Opener | None) -> Event | None:
    """The event as applications may see it; None where it cannot be read."""
    if not sealed:
        return event
    clear = opener.open(event) if opener is not None else None
    return clear if clear is not None and clear.id == event.id else None
