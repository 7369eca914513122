"""The parameters of OLSR, with the defaults of RFC 3626, section 18. The bounds on tables are our own."""

from enum import Enum
from typing import Annotated, TypeAlias

import msgspec

from roamcast.errors import ScenarioError
from roamcast.underlay.addresses import Address, parse_network
from roamcast.wire.olsr import WILL_ALWAYS, WILL_DEFAULT

# The largest validity that the format can express is 3968 s, and three intervals must fit.
Interval: TypeAlias = Annotated[float, msgspec.Meta(ge=0.1, le=1_000)]
InterfaceName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=15)]
Length: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class RelayTies(Enum):
    """Who becomes relay of neighbours that reach equally many nodes (section 8.3.1)."""

    # The highest degree, as the RFC proposes, then the lowest address, on which all agree: fewer relays.
    LOWEST_ADDRESS = "lowest_address"
    # The one heard first, whatever its degree, as ns-3 has it: more relays, each with fewer selectors.
    FIRST_HEARD = "first_heard"


class OlsrOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hello_interval: Interval = 2.0  # seconds
    tc_interval: Interval = 5.0  # seconds
    hold_intervals: Annotated[float, msgspec.Meta(ge=1, le=3)] = 3.0  # NEIGHB_HOLD_TIME and TOP_HOLD_TIME
    duplicate_hold: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 30.0  # DUP_HOLD_TIME
    jitter: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.25  # MAXJITTER as a share of hello_interval
    willingness: Annotated[int, msgspec.Meta(ge=0, le=WILL_ALWAYS)] = WILL_DEFAULT  # 0: never relays
    # Which of two equally good relays is chosen: the one of more neighbours, then of the lower address; or
    # the one heard first, as ns-3 does.
    relay_ties: RelayTies = RelayTies.LOWEST_ADDRESS
    # Section 15: 0 advertises the nodes that chose us, 1 our own relays too, 2 all neighbours. None: 0, and
    # in open mode 2, because olsrd uses a link only if both its ends advertise it.
    tc_redundancy: Annotated[int, msgspec.Meta(ge=0, le=2)] | None = None
    link_layer_notification: bool = False  # section 13: a strategy's failed unicast counts as a lost link
    # How long a link that the link layer reported stays lost; HELLOs do not count meanwhile.
    # None: for NEIGHB_HOLD_TIME, as section 13 has it.
    lost_hold: Annotated[float, msgspec.Meta(ge=0, le=3_000)] | None = None  # seconds
    # Seconds without a HELLO after which such a report counts. 0: at once, as section 13 has it.
    failure_silence: Annotated[float, msgspec.Meta(ge=0, le=3_000)] = 0.0
    hysteresis: bool = False  # section 14: a link counts once enough packets came over it
    # Speak plain RFC 3626 on UDP port 698, beside foreign daemons; in a running node only.
    open: bool = False
    interfaces: Annotated[tuple[InterfaceName, ...], msgspec.Meta(max_length=15)] = ()  # beside the air's own
    kernel_routes: bool = (
        True  # open: write the routes into the host's table; otherwise nobody routes through us
    )
    # Open: networks that this host leads to, announced by HNA; and those, outside the networks of our own
    # interfaces, to which routes of others are believed. Anybody can announce anything, so none unless named.
    networks: Annotated[tuple[str, ...], msgspec.Meta(max_length=256)] = ()
    networks_accepted: Annotated[tuple[str, ...], msgspec.Meta(max_length=256)] = ()
    # Send HELLOs and TCs ahead of time when what they say has changed (section 9.3 allows it for TCs).
    prompt: bool = False
    relay_jitter: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None  # seconds; None: as `jitter`
    # Ours: the longest validity that is accepted, so that a forged number cannot poison a table for an
    # hour (the format allows 3968 s). It exceeds the hold times of every interval up to 100 s.
    validity_max: Annotated[float, msgspec.Meta(ge=1, le=3_968)] = 300.0
    packet_max: Annotated[int, msgspec.Meta(ge=100, le=65_507)] = (
        1_472  # octets: Ethernet's 1500 less IP and UDP
    )
    forward_max: Length = 256  # messages that wait to be relayed
    links_max: Length = 512  # with neighbours, and interfaces of theirs
    two_hop_max: Length = 4_096  # addresses per neighbour
    duplicates_max: Length = 8_192  # messages remembered
    topology_max: Length = 65_536  # links that TCs announce
    associations_max: Length = 4_096  # networks and interfaces of others

    def __post_init__(self) -> None:
        for name in ("hello_interval", "tc_interval"):
            if getattr(self, name) >= self.validity_max:
                problem = f"is {getattr(self, name)}; allowed: less than validity_max, {self.validity_max}"
                raise ScenarioError(
                    f"underlay.options.{name}", f"{problem}, or nothing lasts till the next one"
                )
        for name in ("interfaces", "networks", "networks_accepted"):
            if getattr(self, name) and not self.open:
                raise ScenarioError(f"underlay.options.{name}", "is given without open = true")
        for name in ("networks", "networks_accepted"):
            for text in getattr(self, name):
                try:
                    parse_network(text)
                except ValueError as error:
                    raise ScenarioError(f"underlay.options.{name}", f"has {error}") from None

    def announced_networks(self) -> list[tuple[Address, Address]]:
        """`networks` as pairs of network and netmask."""
        return [parse_network(text) for text in self.networks]
