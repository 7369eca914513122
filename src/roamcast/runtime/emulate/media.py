"""The simulator's radio models, carrying Ethernet frames between TAP devices.

The models are the classes of `runtime/sim` themselves; only what they record differs. As with real Wi-Fi, a
node's kernel does not learn that a unicast frame was given up: the protocols above must notice.

One correction: `csma` in a simulation adds to each payload what link, network and transport layers add in the
field. Here the frame has its own Ethernet, IPv4 and UDP or TCP headers, so only the rest is added.
"""

from collections.abc import Callable

import msgspec

from roamcast.host import Channel, Frame, Kind
from roamcast.runtime.emulate.packet import EthernetFrame
from roamcast.runtime.sim.engine import Engine
from roamcast.runtime.sim.medium import Air, Job, Medium
from roamcast.runtime.sim.playback import Playback
from roamcast.scenario.model import Scenario, model_name
from roamcast.streams import stream
from roamcast.trace import DropReason, Trace
from roamcast.units import Micros, NodeId
from roamcast.world.radio import RADIOS, Csma

CHANNEL = Channel.STRATEGY  # the models need one; the ether does not distinguish channels
HEADERS_CARRIED = 14 + 20 + 8  # Ethernet, IPv4, UDP


class EtherJob(Job):
    """One Ethernet frame, numbered in the order in which the ether took them."""

    __slots__ = ("number", "packet", "taken")

    def __init__(
        self, number: int, taken: Micros, sender: NodeId, packet: EthernetFrame, frame: bytes
    ) -> None:
        super().__init__(sender, CHANNEL, Frame(frame, Kind.DATA, packet.protocol), packet.to, None)
        self.number = number
        self.taken = taken
        self.packet = packet


OnAttempt = Callable[[EtherJob, Micros, Micros, int, int, int], None]
"""A frame, when an attempt began, its airtime; the sets that received it, lost it to a collision, faded."""
OnGivenUp = Callable[[EtherJob, DropReason], None]


class _Carrying(Medium):
    """Calls the ether back instead of writing records."""

    on_attempt: OnAttempt
    on_given_up: OnGivenUp

    def _record(
        self, job: Job, began: Micros, airtime: Micros, received: int, collided: int, faded: int
    ) -> None:
        assert isinstance(job, EtherJob)
        if job.to is not None:
            addressee = 1 << job.to
            received, collided, faded = received & addressee, collided & addressee, faded & addressee
        self.on_attempt(job, began, airtime, received, collided, faded)

    def _give_up(self, job: Job, reason: DropReason) -> None:
        assert isinstance(job, EtherJob)
        self.on_given_up(job, reason)


def medium_of(
    scenario: Scenario, engine: Engine, playback: Playback, on_attempt: OnAttempt, on_given_up: OnGivenUp
) -> Medium:
    radio = scenario.world.radio
    model: type[Medium] = RADIOS.maker(model_name(radio))
    carrying: type[_Carrying] = type(f"Carrying{model.__name__}", (_Carrying, model), {})
    if isinstance(radio, Csma):
        radio = msgspec.structs.replace(radio, header=max(radio.header - HEADERS_CARRIED, 0))
    random, unused = stream(scenario.seed, "radio"), Trace()
    medium = carrying.of(Air(engine, playback.links, playback.sensed, unused, random, scenario.seed), radio)
    medium.on_attempt, medium.on_given_up = on_attempt, on_given_up
    return medium
