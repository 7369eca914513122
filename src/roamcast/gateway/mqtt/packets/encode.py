"""Packets to octets, MQTT 3.1.1 and 5."""

from roamcast.gateway.mqtt.packets.primitives import binary, text, variable
from roamcast.gateway.mqtt.packets.properties import PacketType, Properties, encoded_properties
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingRequest,
    PingResponse,
    Publish,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)

PING_RESPONSE = b"\xd0\x00"
_ACKNOWLEDGED = {type: bytes((type << 4 | (2 if type is PacketType.PUBREL else 0), 2)) for type in PacketType}


def encode(packet: Packet, version: int) -> bytes:
    """One whole packet for a client or server of this version."""
    match packet:
        case Connect():
            return _framed(PacketType.CONNECT << 4, _connect(packet))
        case ConnAck(session_present, reason, properties):
            body = bytes([session_present, reason]) + _properties(properties, version)
            return _framed(PacketType.CONNACK << 4, body)
        case Publish():
            return encode_publish(packet, version)
        case Acknowledge(type, packet_id, reason, properties):
            flags = 2 if type is PacketType.PUBREL else 0
            return _framed(type << 4 | flags, _id(packet_id) + _reasoned(reason, properties, version))
        case Subscribe(packet_id, requests, properties):
            parts = [_id(packet_id), _properties(properties, version)]
            for request in requests:
                options = request.qos | request.no_local << 2 | request.retain_as_published << 3
                parts += [text(request.filter), bytes([options | request.retain_handling << 4])]
            return _framed(PacketType.SUBSCRIBE << 4 | 2, b"".join(parts))
        case SubAck(packet_id, reasons, properties):
            body = _id(packet_id) + _properties(properties, version) + bytes(reasons)
            return _framed(PacketType.SUBACK << 4, body)
        case Unsubscribe(packet_id, filters, properties):
            parts = [_id(packet_id), _properties(properties, version), *map(text, filters)]
            return _framed(PacketType.UNSUBSCRIBE << 4 | 2, b"".join(parts))
        case UnsubAck(packet_id, reasons, properties):
            more = _properties(properties, version) + bytes(reasons) if version == V5 else b""
            return _framed(PacketType.UNSUBACK << 4, _id(packet_id) + more)
        case PingRequest():
            return b"\xc0\x00"
        case PingResponse():
            return PING_RESPONSE
        case Disconnect(reason, properties):
            return _framed(PacketType.DISCONNECT << 4, _reasoned(reason, properties, version))
        case Auth(reason, properties):
            return _framed(PacketType.AUTH << 4, _reasoned(reason, properties, version))


def encode_publish(packet: Publish, version: int) -> bytes:
    first = PacketType.PUBLISH << 4 | packet.duplicate << 3 | packet.qos << 1 | packet.retain
    identifier = _id(packet.packet_id) if packet.qos else b""
    properties = _properties(packet.properties, version)
    return _framed(first, b"".join((text(packet.topic), identifier, properties, packet.payload)))


def acknowledgement(type: PacketType, packet_id: int) -> bytes:
    """The short form of success: the same four octets in both versions."""
    return _ACKNOWLEDGED[type] + packet_id.to_bytes(2, "big")


def _connect(packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [text("MQTT"), bytes([packet.version, flags]), packet.keep_alive.to_bytes(2, "big")]
    parts += [_properties(packet.properties, packet.version), text(packet.client_id)]
    if will is not None:
        parts += [_properties(will.properties, packet.version), text(will.topic), binary(will.payload)]
    if packet.username is not None:
        parts.append(text(packet.username))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return b"".join(parts)


def _reasoned(reason: int, properties: Properties | None, version: int) -> bytes:
    if version != V5 or (not reason and properties is None):
        return b""  # success without properties may be left out (3.4.2.1, 3.14.2.1)
    return bytes([reason]) + (b"" if properties is None else encoded_properties(properties))


def _properties(properties: Properties | None, version: int) -> bytes:
    return encoded_properties(properties) if version == V5 else b""


def _id(packet_id: int) -> bytes:
    return packet_id.to_bytes(2, "big")


def _framed(first: int, body: bytes) -> bytes:
    return bytes([first]) + variable(len(body)) + body
