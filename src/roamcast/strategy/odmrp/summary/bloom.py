"""Bloom filters as integers: which bits a token sets, and how a bit vector is encoded.

A token is a 24-bit hash of something that a subscription names or an event has. Its bits in a filter of
m bits and k hash functions follow from the token alone, so an event's digest can carry tokens and be
looked up in filters of any size.
"""

from functools import lru_cache
from hashlib import blake2b

from roamcast.errors import WireError

TOKEN_BYTES = 3  # two tokens collide with 2^-24, far below any filter's own error
TOKEN_BITS = 8 * TOKEN_BYTES
BITS_MAX = 8192  # of one filter; 13 bits of a mixed token choose a position
HASHES_MAX = 8  # chosen by us

_WORD = (1 << 64) - 1


def false_positive_rate(bits: int, hashes: int, items: int) -> float:
    """Theory: the chance that a filter of `bits` bits with `items` members matches a value not in it."""
    empty: float = (1 - 1 / bits) ** (hashes * items)
    return (1.0 - empty) ** hashes


def text_token(family: bytes, text: str) -> int:
    """The token of a text; the family keeps equal texts with different meanings apart."""
    data = family + b":" + text.encode("utf-8", "surrogatepass")  # an event may contain lone surrogates
    return int.from_bytes(blake2b(data, digest_size=TOKEN_BYTES).digest(), "big")


def number_token(*parts: int) -> int:
    """The token of a row of numbers below 2^32; much cheaper than hashing a text."""
    mixed = 0
    for part in parts:
        mixed = _mixed(mixed ^ part)
    return mixed >> (64 - TOKEN_BITS)


@lru_cache(maxsize=1 << 16)
def mask(token: int, bits: int, hashes: int) -> int:
    """The bits that a token sets. Positions are drawn independently and may coincide, as theory assumes."""
    found = 0
    state = token
    for _ in range(hashes):
        state = _mixed(state + 0x9E3779B97F4A7C15)
        found |= 1 << (state >> 32) % bits
    return found


def encode_bits(vector: int, bits: int) -> bytes:
    """Encode a non-empty vector. If few bits are set: their number, then the gaps before each in Rice code.
    Otherwise a 0 and the whole vector.

    The Rice code of a gap: its upper part in unary (ones and a zero), its lower `_rice_bits` bits in binary.
    The positions of a Bloom filter are evenly spread; for those it is within a tenth of the entropy.
    """
    count = vector.bit_count()
    assert count > 0 and vector >> bits == 0
    size = (bits + 7) // 8
    if count < 256:
        low = _rice_bits(bits, count)
        code, length, last = 0, 0, -1
        for position in positions(vector):
            upper, lower = divmod(position - last - 1, 1 << low)
            last = position
            code = code << upper + 1 + low | ((1 << upper) - 1) << low + 1 | lower
            length += upper + 1 + low
        octets = (length + 7) // 8
        if octets < size:
            return bytes([count]) + (code << 8 * octets - length).to_bytes(octets, "big")
    return b"\0" + vector.to_bytes(size, "little")


def decode_bits(data: bytes, at: int, bits: int, field: str) -> tuple[int, int]:
    """The vector at octet `at`, and the octet after it."""
    if at >= len(data):
        raise WireError(field, at, "is missing")
    count, size = data[at], (bits + 7) // 8
    if count:
        return _decode_gaps(data, at + 1, count, bits, field)
    end = at + 1 + size
    if end > len(data):
        raise WireError(field, at, f"needs {1 + size} octets, {len(data) - at} left")
    vector = int.from_bytes(data[at + 1 : end], "little")
    if vector == 0 or vector >> bits:
        raise WireError(field, at, f"is empty or has bits beyond its {bits}")
    return vector, end


def _decode_gaps(data: bytes, at: int, count: int, bits: int, field: str) -> tuple[int, int]:
    chunk = data[at : at + (bits + 7) // 8]
    digits = f"{int.from_bytes(chunk, 'big'):0{8 * len(chunk)}b}" if chunk else ""
    low = _rice_bits(bits, count)
    vector, position, here = 0, -1, 0
    for _ in range(count):
        stop = digits.find("0", here)
        end = stop + 1 + low
        if stop < 0 or end > len(digits):
            raise WireError(field, at, f"ends before its {count} bits")
        position += (stop - here << low) + int("0" + digits[stop + 1 : end], 2) + 1
        if position >= bits:
            raise WireError(field, at, f"names bit {position} of {bits}")
        vector |= 1 << position
        here = end
    octets = (here + 7) // 8
    if "1" in digits[here : 8 * octets]:
        raise WireError(field, at + octets - 1, "is not padded with zeros")
    return vector, at + octets


def _rice_bits(bits: int, count: int) -> int:
    """The best number of lower bits for gaps that are evenly spread (Rice and Plaunt 1971)."""
    return max((bits * 7 // (10 * count)).bit_length() - 1, 0)


def positions(vector: int) -> list[int]:
    """The set bits, ascending."""
    found = []
    while vector:
        lowest = vector & -vector
        found.append(lowest.bit_length() - 1)
        vector ^= lowest
    return found


def _mixed(state: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): each input bit reaches each output bit."""
    state &= _WORD
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _WORD
    return state ^ state >> 31
