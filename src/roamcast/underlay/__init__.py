"""Underlays: who is a neighbour, and which way leads to nodes beyond.

`base` is the interface that strategies see. `ideal` knows the world (simulation only), `beacons`
learns neighbours from periodic broadcasts, `olsr` routes by RFC 3626, `kernel` reads the host's own
routing table. A strategy names the underlay it wants; a scenario may choose another.
"""

from roamcast.registry import Registry
from roamcast.underlay.base import NoUnderlay, Oracle, Underlay, UnderlayContext
from roamcast.underlay.beacons import BeaconOptions, Beacons
from roamcast.underlay.ideal import IdealOptions, IdealUnderlay, NoOptions
from roamcast.underlay.kernel import Kernel, KernelOptions
from roamcast.underlay.olsr import Olsr, OlsrOptions

__all__ = ["UNDERLAYS", "Oracle", "Underlay", "UnderlayContext", "names", "options_type"]

UNDERLAYS: Registry[UnderlayContext, Underlay] = Registry("underlay")
UNDERLAYS.add("none", NoOptions, lambda context, options: NoUnderlay())
UNDERLAYS.add("ideal", IdealOptions, IdealUnderlay)
UNDERLAYS.add("beacons", BeaconOptions, Beacons)
UNDERLAYS.add("olsr", OlsrOptions, Olsr)
UNDERLAYS.add("kernel", KernelOptions, Kernel)

names = UNDERLAYS.names
options_type = UNDERLAYS.options_type
