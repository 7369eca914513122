"""One connection to the broker: packets in and out, keep alive, and why it ended."""

import asyncio
from typing import Protocol

from roamcast.errors import WireError
from roamcast.gateway.bridge.options import BridgeOptions
from roamcast.gateway.mqtt.packets.decode import decode
from roamcast.gateway.mqtt.packets.encode import encode
from roamcast.gateway.mqtt.packets.properties import Properties
from roamcast.gateway.mqtt.packets.reasons import ReasonCode, label
from roamcast.gateway.mqtt.packets.values import (
    V5,
    Acknowledge,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingRequest,
    PingResponse,
    Publish,
    SubAck,
)
from roamcast.gateway.mqtt.transport import PacketStream, RawPacket
from roamcast.gateway.stream import Turn

# Chosen by us.
PACKET_BYTES_MAX = 60_000  # an event's payload bound; the broker is told
WRITE_BYTES_MAX = 256 * 1024
ANSWER_SECONDS = 5.0  # for CONNACK, and after a PINGREQ
SESSION_EXPIRY = 7 * 86_400  # seconds that the broker keeps the session without any carrier


class UplinkOwner(Protocol):
    def on_up(self, session_present: bool, inflight_max: int) -> None: ...

    def on_message(self, message: Publish) -> None: ...

    def on_acknowledge(self, packet: Acknowledge) -> None: ...

    def on_down(self, why: str) -> None: ...

    def on_room(self) -> None:
        """The broker reads again."""
        ...


class Uplink(PacketStream):
    def __init__(
        self, turn: Turn, owner: UplinkOwner, options: BridgeOptions, client_id: str, password: bytes | None
    ) -> None:
        super().__init__(turn, PACKET_BYTES_MAX + 1_000, WRITE_BYTES_MAX)
        self._owner = owner
        self._options = options
        self._client_id = client_id
        self._password = password
        self._why = "the broker closed the connection"
        self._is_up = False
        self._pinged: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.say(
            Connect(
                version=V5,
                client_id=self._client_id,
                clean_start=False,
                keep_alive=2 * self._options.keep_alive,
                username=self._options.username or None,
                password=self._password,
                properties=Properties(
                    session_expiry=SESSION_EXPIRY,
                    receive_maximum=self._options.inflight_max,
                    maximum_packet_size=PACKET_BYTES_MAX,
                ),
            )
        )
        self._timer = self._loop.call_later(
            ANSWER_SECONDS, self.end, f"the broker did not answer for {ANSWER_SECONDS:g} seconds"
        )

    def on_item(self, item: RawPacket) -> None:
        packet = decode(*item, V5)
        match packet:
            case ConnAck() if not self._is_up:
                self._on_connack(packet)
            case Publish() if self._is_up:
                self._owner.on_message(packet)
            case Acknowledge() if self._is_up:
                self._owner.on_acknowledge(packet)
            case SubAck() if self._is_up:
                refused = [label(ReasonCode(reason)) for reason in packet.reasons if reason >= 0x80]
                if refused:
                    self.end(f"the broker refuses a filter of bridge.down: {refused[0]}")
            case PingResponse():
                self._pinged = None
            case Disconnect(reason):
                self.end(f"the broker disconnected us: {_reason(reason)}")
            case _:
                self.end("the broker sent a packet that is not for clients")

    def on_malformed(self, error: WireError) -> None:
        self.end(f"the broker sent what is no MQTT 5: {error}")

    def on_writable(self) -> None:
        self._owner.on_room()

    def on_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.on_down(self._why)

    # Inputs.

    def say(self, packet: Packet) -> None:
        self.send(encode(packet, V5))

    def end(self, why: str) -> None:
        self._why = why
        self.close(at_once=True)

    # Private.

    def _on_connack(self, packet: ConnAck) -> None:
        if packet.reason:
            self.end(f"the broker refuses us: {_reason(packet.reason)}")
            return
        self._is_up = True
        granted = packet.properties or Properties()
        inflight = min(granted.receive_maximum or 65_535, self._options.inflight_max)
        self._again()
        self._owner.on_up(packet.session_present, inflight)

    def _again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._options.keep_alive, self._ping)

    def _ping(self) -> None:
        self.say(PingRequest())
        self._pinged = self._loop.time()
        self._timer = self._loop.call_later(ANSWER_SECONDS, self._check_ping)

    def _check_ping(self) -> None:
        # Anything that was heard since counts: while we do not read, the answer waits too.
        if self._pinged is not None and self.heard_at < self._pinged and not self._held:
            self.end(f"the broker did not answer for {ANSWER_SECONDS:g} seconds")
        else:
            self._again()


def _reason(code: int) -> str:
    try:
        return label(ReasonCode(code)).replace("_", " ")
    except ValueError:
        return f"reason {code:#04x}"
