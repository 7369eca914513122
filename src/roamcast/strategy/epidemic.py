"""Epidemic: flood what is new, and keep comparing what neighbours hold. Our own default for small fleets in
the field.

Not one of the five papers. Flooding reaches every node that is connected at that moment; anti-entropy (Demers
and others, 1987; over radio, Vahdat and Becker's epidemic routing, 2000) carries memorized events across
partitions and repairs losses of the radio. Subscriptions are not sent. The mechanism is `kit/spread.py`:
senders name the relays of their copies (multipoint relays, as S-MPR of SMF, RFC 6621), by the beacons of
their neighbours.
"""

from roamcast.kit.anti_entropy import HadEvents, Handed, HandedToAll, HoldingsDigest, TooOld, WantEvents
from roamcast.kit.spread import FloodedEvent, PassedOn, Spreading, SpreadingOptions
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.wire import Codec


class EpidemicOptions(SpreadingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in seconds. The defaults are chosen by us."""


EpidemicMessage = (
    FloodedEvent | Handed | HandedToAll | PassedOn | HoldingsDigest | WantEvents | HadEvents | TooOld
)
CODEC: Codec[EpidemicMessage] = Codec("epidemic", 4, EpidemicMessage)


class Epidemic(Spreading, Strategy):
    def __init__(self, context: StrategyContext, options: EpidemicOptions) -> None:
        super().__init__(context.host, CODEC, context.broker, context.underlay, options)
