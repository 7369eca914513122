"""Messages between nodes and their codecs.

`codec` is the versioned, bounded, strict form that Roamcast's own protocols share; each protocol keeps
its message classes beside its logic. Packets of other protocols (RFC 3626) get a module of their own
here, bit for bit. Nothing in this package touches state: a decoder answers or raises `WireError`.
"""

from roamcast.wire.codec import FRAME_BYTES_MAX, Codec

__all__ = ["FRAME_BYTES_MAX", "Codec"]
