"""How a Chapar node sends: to a neighbour, to all brokers around after a random delay, or in turn with
pauses."""

from collections.abc import Callable
from typing import NamedTuple

from roamcast.event import EventId
from roamcast.host import SendFailure
from roamcast.kit.protocol import Messenger, OnFailure, Timer, WireMessage
from roamcast.kit.repair import Answers
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar.messages import (
    CODEC,
    AnyMessage,
    Attach,
    Carry,
    Check,
    Decline,
    InterestRegister,
    Memorized,
    Records,
    Spread,
)
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.tables import octets_of
from roamcast.trace import DropReason
from roamcast.units import Micros, NodeId, micros

# Chosen by us.
RECORDS_BYTES = 1_200  # of registers in one frame; a larger register is sent alone
TRANSFERS_MAX = 16_384  # events that wait for their turn
BROKEN_MAX = 256  # links that failed


class Transfer(NamedTuple):
    """An event that waits for its turn. `make` gives its message then, because ages grow meanwhile; None if
    it need not be sent any more."""

    make: Callable[[Micros], Carry | Spread | Memorized | None]
    own: bool
    on_failure: OnFailure | None


class Sending(Messenger[AnyMessage]):
    def __init__(self, context: StrategyContext, options: ChaparOptions) -> None:
        super().__init__(context.host, CODEC)
        self._underlay = context.underlay
        self._options = options
        self._is_prompt = options.in_force().meeting_check
        self._link_hold = micros(options.in_force().link_hold)
        # Links that failed, and until when they are not trusted: the latest.
        self._broken: BoundedDict[NodeId, Micros] = BoundedDict(BROKEN_MAX, unreported)
        self._floods: dict[object, Callable[[], AnyMessage]] = {}
        self._flood_timer = Timer(self.host, self._send_floods)
        self.transfers: Answers[tuple[NodeId, EventId], Transfer] = Answers(
            self.host, self._transfer, most=TRANSFERS_MAX, on_full=self._trace_full, wait=0
        )

    def send(
        self,
        message: AnyMessage,
        to: NodeId | None = None,
        *,
        own: bool = False,
        like: WireMessage | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """`own`: on behalf of this node's own applications."""
        if to is None:
            super().send(message, own=own, like=like)
        elif to != self.node:

            def failed(failure: SendFailure) -> None:
                if failure is SendFailure.LINK:  # a full queue of our own says nothing about the link
                    self._broken.renew(to, self.host.now() + self._link_hold)
                    self._underlay.on_link_failure(to)
                if on_failure is not None:
                    on_failure(failure)

            super().send(message, to, own=own, like=like, on_failure=failed)

    def ride(
        self,
        message: Attach | Check | Decline,
        to: NodeId,
        *,
        at_once: bool,
        own: bool = False,
        on_failure: OnFailure | None = None,
    ) -> None:
        """What can wait for the next HELLO rides on it: no frame of its own, and heard by all around."""
        if at_once or not self._underlay.ride(type(message).__name__, CODEC.encode(message)):
            self.send(message, to, own=own, on_failure=on_failure)

    def decline(self, to: NodeId) -> None:
        """This node is no broker, although another one takes it for one."""
        self.ride(Decline(), to, at_once=self._is_prompt)

    def on_heard(self, neighbour: NodeId) -> None:
        """Something came from it: its link is not broken."""
        self._broken.pop(neighbour, None)

    def is_broken(self, neighbour: NodeId) -> bool:
        """Whether a frame to it failed less than `link_hold` ago, and nothing came from it since."""
        return self._broken.get(neighbour, 0) > self.host.now()

    def send_registers(
        self, to: NodeId, registers: list[InterestRegister], *, own: bool = False, exchanged: bool = False
    ) -> None:
        """Send registers in frames of up to `RECORDS_BYTES`."""
        batch: list[InterestRegister] = []
        size = 0
        for register in registers:
            octets = octets_of(register.filter_ids)
            if batch and size + octets > RECORDS_BYTES:
                self.send(Records(tuple(batch), exchanged), to, own=own)
                batch, size = [], 0
            batch.append(register)
            size += octets
        if batch:
            self.send(Records(tuple(batch), exchanged), to, own=own)

    def flood(self, key: object, make: Callable[[], AnyMessage]) -> None:
        """Broadcast after a random delay, so that the receivers of one frame do not all send together: all
        that waits at once. A newer message under the same key replaces the one that waits."""
        if not self._underlay.neighbours():
            return  # no neighbours; a later consistency check will spread it
        if key not in self._floods and len(self._floods) >= self._options.pending_max:
            self._trace_full()
            return
        if not self._floods:
            self._flood_timer.within(micros(self._options.jitter))
        self._floods[key] = make

    def transfer(
        self,
        to: NodeId,
        event: EventId,
        make: Callable[[Micros], Carry | Spread | Memorized | None],
        *,
        own: bool = False,
        on_failure: OnFailure | None = None,
    ) -> None:
        """Send an event to a neighbour (a `Spread`: to all) in turn: a few frames, then a pause."""
        self.transfers.add([((to, event), Transfer(make, own, on_failure))])

    def _send_floods(self) -> None:
        waiting, self._floods = self._floods, {}
        for make in waiting.values():
            self.send(make())

    def _transfer(self, key: tuple[NodeId, EventId], transfer: Transfer) -> int:
        message = transfer.make(self.host.now())
        if message is None:
            return 0
        to = None if isinstance(message, Spread) else key[0]
        self.send(message, to, own=transfer.own, on_failure=transfer.on_failure)
        return len(message.event.payload) or 1

    def _trace_full(self) -> None:
        self.drop(DropReason.QUEUE_FULL, "consistency", detail="too many frames wait for their turn")
