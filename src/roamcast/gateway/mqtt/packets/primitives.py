"""The smallest parts of a packet: numbers, texts, binary data (MQTT 5.0, section 1.5; 3.1.1 the same).

Every reader takes the octets and a position; it returns a value with the position after it, or raises
`MalformedPacket`. Nothing here keeps state or trusts a length.
"""

from roamcast.errors import WireError
from roamcast.gateway.mqtt.packets.reasons import ReasonCode

VARIABLE_MAX = 268_435_455  # four octets of seven bits
TEXT_BYTES_MAX = 65_535


class MalformedPacket(WireError):  # noqa: N818 - the specification's own term
    """Octets from a client that are no packet, or one that is not allowed here; `reason` is for its
    DISCONNECT."""

    def __init__(
        self, field: str, octet: int, problem: str, reason: ReasonCode = ReasonCode.MALFORMED_PACKET
    ) -> None:
        super().__init__(field, octet, problem)
        self.reason = reason


def protocol_error(field: str, octet: int, problem: str) -> MalformedPacket:
    """Well formed, and still not allowed (section 4.13)."""
    return MalformedPacket(field, octet, problem, ReasonCode.PROTOCOL_ERROR)


def read_octet(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at >= len(data):
        raise MalformedPacket(field, at, "is missing")
    return data[at], at + 1


def read_two(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at + 2 > len(data):
        raise MalformedPacket(field, at, f"needs 2 octets, {max(0, len(data) - at)} left")
    return (data[at] << 8) | data[at + 1], at + 2


def read_four(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at + 4 > len(data):
        raise MalformedPacket(field, at, f"needs 4 octets, {max(0, len(data) - at)} left")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def read_variable(data: bytes, at: int, field: str) -> tuple[int, int]:
    """A variable byte integer, at most four octets, in its shortest form (1.5.5)."""
    value = 0
    for count in range(4):
        if at + count >= len(data):
            raise MalformedPacket(field, at, "ends within its number")
        octet = data[at + count]
        value |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            if count and not octet:
                raise MalformedPacket(field, at, "is not in its shortest form")
            return value, at + count + 1
    raise MalformedPacket(field, at, "has more than 4 octets")


def read_binary(data: bytes, at: int, field: str) -> tuple[bytes, int]:
    length, at = read_two(data, at, field)
    if at + length > len(data):
        raise MalformedPacket(field, at, f"needs {length} octets, {len(data) - at} left")
    return data[at : at + length], at + length


def read_text(data: bytes, at: int, field: str) -> tuple[str, int]:
    raw, after = read_binary(data, at, field)
    return decoded_text(raw, at + 2, field), after


def decoded_text(raw: bytes, at: int, field: str) -> str:
    """UTF-8 without surrogates and without U+0000 (1.5.4)."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket(field, at, "is not UTF-8") from None
    if "\0" in text:
        raise MalformedPacket(field, at, "holds U+0000")
    return text


def variable(value: int) -> bytes:
    """A variable byte integer in its shortest form."""
    if value < 0x80:
        return _ONE_OCTET[value]
    assert value <= VARIABLE_MAX, value
    octets = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        octets.append(low | 0x80 if value else low)
        if not value:
            return bytes(octets)


def binary(value: bytes) -> bytes:
    assert len(value) <= TEXT_BYTES_MAX, len(value)
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    return binary(value.encode())


_ONE_OCTET = [bytes([value]) for value in range(0x80)]
