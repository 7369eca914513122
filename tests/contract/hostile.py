"""Messages that are well formed and mean harm, made from the types of any protocol: a member may send them.

`MessageMaker` draws a value for each field of a message from its type and bounds: numbers of nodes that are
there and numbers that no node has, the ends of every range, empty and long lists, octets that are messages of
the same protocol, what was heard on the air in the same field, and the same damaged.
"""

import importlib
import pkgutil
import struct
from collections.abc import Callable
from functools import cache
from random import Random
from types import ModuleType
from typing import Any

import msgspec
from msgspec import inspect

from roamcast.errors import FilterError, WireError
from roamcast.filter import Filter
from roamcast.wire import Codec
from roamcast.wire.aodv import AodvError, AodvMessage, AodvReply, AodvRequest, encode_aodv
from roamcast.wire.olsr import encode_hello, encode_hna, encode_message, encode_mid, encode_packet, encode_tc

EDGES = [0, 1, 2, 3, 63, 64, 127, 128, 255, 256, 1_000, 65_535, 65_536, 2**31, 2**32, 2**40, 2**53, 2**63]
TEXTS = ["", "a", "a/b", "#", "+/+", "level > 3", "((((", "'", "\0", "é", "\ud7ff", "$reply/1/2", "x" * 300]
NUMBERS = [0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, float("nan"), float("inf"), -float("inf")]
FILTERS = ["", "level > 3", "level > 3 AND a = 'b'", "topic LIKE 'a/%'", "level BETWEEN 1 AND 1000000000"]
DEPTH = 8
LONG = 2_000  # entries of a list where its type has no bound, or a higher one
KEPT = 64  # heard values of one field


class MessageMaker:
    def __init__(self, draw: Random, nodes: int, protocol: ModuleType) -> None:
        """`protocol`: a package or module; octets in its messages may be messages of any of its codecs."""
        self._draw = draw
        self._nodes = nodes
        self._codecs = codecs_of(protocol)
        self._heard: dict[tuple[type[Any], str], list[Any]] = {}
        self._inside = 0  # octets in octets

    def make(self, codec: Codec[Any]) -> bytes:
        value = self._value(type_of(codec), 0)
        return bytes([codec._version]) + msgspec.msgpack.encode(value)

    def make_any(self) -> bytes:
        return self.make(self._draw.choice(self._codecs))

    def learn(self, payload: bytes) -> None:
        """Octets that an honest node has sent."""
        for codec in self._codecs:
            try:
                self._remember(codec.decode(payload))
            except WireError:
                continue

    def damaged(self, octets: bytes) -> bytes:
        changed = bytearray(octets)
        for _ in range(self._draw.randrange(1, 4) if changed else 0):
            changed[self._draw.randrange(len(changed))] = self._draw.randrange(256)
        return bytes(changed[: self._draw.choice([len(changed), len(changed), len(changed) // 2])])

    # Private.

    def _remember(self, value: Any) -> None:
        if isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                found = getattr(value, name)
                known = self._heard.setdefault((type(value), name), [])
                if len(known) < KEPT:
                    known.append(found)
                self._remember(found)
        elif isinstance(value, tuple | list | frozenset | set):
            for one in list(value)[:20]:
                self._remember(one)
        elif isinstance(value, bytes) and self._inside < 2:
            self._inside += 1
            self.learn(value)
            self._inside -= 1

    def _value(self, kind: Any, depth: int) -> Any:
        draw = self._draw
        match kind:
            case inspect.StructType():
                return self._struct(kind, depth)
            case inspect.UnionType():
                return self._value(draw.choice(kind.types), depth)
            case inspect.IntType():
                return self._number(kind)
            case inspect.FloatType():
                return self._within(kind, draw.choice([*NUMBERS, draw.random()]), 1e-9)
            case inspect.StrType():
                text = draw.choice(TEXTS)[: kind.max_length]
                return text.ljust(kind.min_length or 0, "z")
            case inspect.BytesType():
                return self._octets(kind)
            case inspect.BoolType():
                return draw.random() < 0.5
            case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
                entries = 0 if depth > DEPTH else self._length(kind, 4)
                return [self._value(kind.item_type, depth + 1) for _ in range(entries)]
            case inspect.TupleType():
                return [self._value(one, depth + 1) for one in kind.item_types]
            case inspect.NamedTupleType():
                return [self._value(field.type, depth + 1) for field in kind.fields]
            case inspect.DictType():
                pairs = range(self._length(kind, 3))
                return {self._value(kind.key_type, DEPTH): self._value(kind.value_type, DEPTH) for _ in pairs}
            case inspect.EnumType():
                return draw.choice([one.value for one in kind.cls])
            case inspect.LiteralType():
                return draw.choice(list(kind.values))
            case inspect.AnyType():
                return draw.choice([0, "a", None, 1.5, b"x", [], {}])
        assert isinstance(kind, inspect.NoneType), f"no values of {kind} are made yet"
        return None

    def _struct(self, kind: inspect.StructType, depth: int) -> Any:
        values: dict[str, Any] = {}
        for field in kind.fields:
            heard = self._heard.get((kind.cls, field.name))
            if heard and self._draw.random() < 0.4:
                values[field.encode_name] = _plain(self._draw.choice(heard))
            else:
                values[field.encode_name] = self._value(field.type, depth + 1)
        if kind.array_like:
            return [*([] if kind.tag is None else [kind.tag]), *values.values()]
        return values if kind.tag is None else {str(kind.tag_field): kind.tag, **values}

    def _number(self, kind: inspect.IntType) -> int:
        draw = self._draw
        drawn = draw.choice(
            [
                draw.randrange(self._nodes + 2),
                draw.randrange(100),
                draw.choice(EDGES) + draw.choice([0, -1, 1]),
                draw.randrange(-(2**63), 2**63),
            ]
        )
        return min(max(int(self._within(kind, drawn, 1)), -(2**63)), 2**63 - 1)

    def _within(self, kind: Any, value: Any, step: float) -> Any:
        if kind.ge is not None and not value >= kind.ge:
            value = kind.ge
        if kind.gt is not None and not value > kind.gt:
            value = kind.gt + step
        if kind.le is not None and not value <= kind.le:
            value = kind.le
        if kind.lt is not None and not value < kind.lt:
            value = kind.lt - step
        return value

    def _length(self, kind: Any, usual: int) -> int:
        least = kind.min_length or 0
        most = min(kind.max_length or LONG, LONG)
        drawn = least + self._draw.randrange(usual + 1)
        return max(least, min(most, self._draw.randrange(most + 1) if self._draw.random() < 0.02 else drawn))

    def _octets(self, kind: inspect.BytesType) -> bytes:
        draw = self._draw
        if draw.random() < 0.4 and self._codecs and self._inside < 2:
            self._inside += 1
            made = self.make(draw.choice(self._codecs))
            self._inside -= 1
        elif draw.random() < 0.3:
            made = _filter(draw.choice(FILTERS)).encode()
        else:
            made = draw.randbytes(self._length(kind, 40))
        return (made if draw.random() < 0.9 else self.damaged(made))[: kind.max_length].ljust(
            kind.min_length or 0, b"\0"
        )

    # Protocols with a form of their own.

    def olsr_packet(self) -> bytes:
        draw = self._draw
        messages = []
        for _ in range(draw.choice([1, 1, 2, 4])):
            kind = draw.choice([1, 2, 3, 4, 167, draw.randrange(256)])
            bodies: dict[int, Callable[[], bytes]] = {
                1: lambda: encode_hello(
                    draw.randrange(1_000_000), draw.randrange(8), [(draw.randrange(16), self._addresses())]
                ),
                2: lambda: encode_tc(draw.randrange(65_536), self._addresses()),
                3: lambda: encode_mid(self._addresses()),
                4: lambda: encode_hna([(one, draw.choice([0, 2**32 - 1])) for one in self._addresses()]),
                167: lambda: struct.pack("!IB3x", *self._addresses(1), draw.randrange(256)),
            }
            body = bodies.get(kind, lambda: draw.randbytes(draw.randrange(30)))()
            ttl, hops = (draw.choice([0, 1, 2, 255]) for _ in range(2))
            origin = self._addresses(1)[0]
            validity = draw.choice([0, 1_000_000, 3_000_000_000])
            messages.append(encode_message(kind, validity, origin, ttl, hops, draw.randrange(65_536), body))
        return encode_packet(draw.randrange(65_536), messages)

    def aodv_message(self) -> bytes:
        draw = self._draw
        destination, sequence, originator, number, lifetime = (self._addresses(1)[0] for _ in range(5))
        hops = draw.choice([0, 1, 255])
        messages: list[AodvMessage] = [
            AodvRequest(draw.randrange(256), hops, number, destination, sequence, originator, lifetime),
            AodvReply(hops, destination, sequence, originator, lifetime),
            AodvError(tuple((one, draw.randrange(2**32)) for one in self._addresses()[:255] or [1])),
        ]
        return encode_aodv(draw.choice([0, 1, 64, 255]), draw.choice(messages))

    def _addresses(self, count: int | None = None) -> list[int]:
        draw = self._draw
        wanted = draw.choice([0, 1, 3, 300]) if count is None else count
        nodes = [0x0A000001 + draw.randrange(self._nodes + 2) for _ in range(wanted)]
        return [one if draw.random() < 0.7 else draw.randrange(2**32) for one in nodes]


@cache
def type_of(codec: Codec[Any]) -> Any:
    return inspect.type_info(codec._decoder.type)


def codecs_of(protocol: ModuleType) -> list[Codec[Any]]:
    """All that its modules have."""
    names = [protocol.__name__]
    if hasattr(protocol, "__path__"):
        names += [found.name for found in pkgutil.walk_packages(protocol.__path__, protocol.__name__ + ".")]
    found: dict[int, Codec[Any]] = {}
    for name in names:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, Codec):
                found[id(value)] = value
    return list(found.values())


def _filter(text: str) -> Filter:
    try:
        return Filter.sql(text) if text else Filter.everything()
    except FilterError:
        return Filter.everything()


def _plain(value: Any) -> Any:
    """As a decoder would read it again."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
