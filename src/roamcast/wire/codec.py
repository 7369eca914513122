"""The common form of Roamcast's messages: one version octet, then MessagePack of a tagged struct.

Fields have an order instead of names (msgspec's `array_like`), so a message costs little more than
its values. Decoding is strict: wrong types, unknown tags, missing or extra fields, broken bounds and
trailing octets are all refused. What a bound cannot express in a type (total size, nesting) is
checked here.
"""

from typing import Generic, TypeVar

import msgspec

from roamcast.errors import WireError

FRAME_BYTES_MAX = 65_507  # the largest UDP payload over IPv4

Message = TypeVar("Message", bound=msgspec.Struct)


class Codec(Generic[Message]):
    """Encodes and decodes the messages of one protocol.

    `types` is a struct class or a union of tagged ones. The version is the protocol's own: a change
    that an older node would misread increments it; older nodes then drop and count the frame.
    """

    def __init__(self, name: str, version: int, types: object, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        assert 0 < version < 256
        self.name = name
        self._version = version
        self._prefix = bytes([version])
        self.bytes_max = self._bytes_max = bytes_max
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(types)
        self._last_data: bytes | None = None
        self._last_message: Message

    def encode(self, message: Message) -> bytes:
        data = self._prefix + self._encoder.encode(message)
        assert len(data) <= self._bytes_max, f"{self.name}: a message of {len(data)} octets"
        return data

    def is_of_this_version(self, data: bytes) -> bool:
        return data[:1] == self._prefix

    def decode(self, data: bytes) -> Message:
        """The message, or `WireError`; no other error, whatever the octets."""
        # One broadcast reaches many nodes of a simulation as the same object: decode it once. The
        # messages are immutable, so sharing them is safe.
        if data is self._last_data:
            return self._last_message
        if len(data) > self._bytes_max:
            raise WireError(self.name, 0, f"has {len(data)} octets, at most {self._bytes_max} are allowed")
        if not data:
            raise WireError(self.name, 0, "is empty")
        if data[0] != self._version:
            raise WireError(self.name, 0, f"has version {data[0]}, this node speaks {self._version}")
        try:
            message = self._decoder.decode(data[1:])
        except (msgspec.DecodeError, ValueError, RecursionError, MemoryError) as error:
            raise WireError(self.name, 1, f"cannot be read: {error}") from None
        if len(data) <= FRAME_BYTES_MAX:
            self._last_data, self._last_message = data, message
        return message
