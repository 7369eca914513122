"""Underlays: who is a neighbour, and which routes lead to other nodes.

`base` is the interface that strategies see, with `none` and `ideal`, which knows the world (simulation only).
`beacons` learns neighbours from periodic broadcasts, `olsr` routes by RFC 3626, `aodv` on demand by RFC 3561,
`kernel` reads the host's own routing table. `addresses` are those of IPv4. A strategy names the underlay it
wants; a scenario may choose another.
"""

from typing import NamedTuple

from roamcast.registry import Registry
from roamcast.underlay.base import Oracle, Underlay, UnderlayContext

__all__ = ["UNDERLAYS", "Oracle", "Underlay", "UnderlayAbilities", "UnderlayContext", "names", "options_type"]


class UnderlayAbilities(NamedTuple):
    """What an underlay declares where it is registered."""

    only_simulated: bool = False  # it knows the whole world, which no live node does
    reads_host_routes: bool = False  # neighbours have the addresses of the host's own routing table
    names_relays: bool = False  # it answers `Underlay.relays`


UNDERLAYS: Registry[UnderlayContext, Underlay, UnderlayAbilities] = Registry(
    "underlay", "roamcast.underlays", UnderlayAbilities
)
UNDERLAYS.declare("none", "roamcast.underlay.base:NoOptions", "roamcast.underlay.base:NoUnderlay")
UNDERLAYS.declare(
    "ideal",
    "roamcast.underlay.base:IdealOptions",
    "roamcast.underlay.base:IdealUnderlay",
    only_simulated=True,
)
UNDERLAYS.declare("beacons", "roamcast.underlay.beacons:BeaconOptions", "roamcast.underlay.beacons:Beacons")
UNDERLAYS.declare(
    "olsr", "roamcast.underlay.olsr:OlsrOptions", "roamcast.underlay.olsr:Olsr", names_relays=True
)
UNDERLAYS.declare("aodv", "roamcast.underlay.aodv:AodvOptions", "roamcast.underlay.aodv:Aodv")
UNDERLAYS.declare(
    "kernel",
    "roamcast.underlay.kernel:KernelOptions",
    "roamcast.underlay.kernel:Kernel",
    reads_host_routes=True,
    names_relays=True,
)

names = UNDERLAYS.names
options_type = UNDERLAYS.options_type
