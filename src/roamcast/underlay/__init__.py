"""Underlays: who is a neighbour, and which way leads to nodes beyond.

`base` is the interface that strategies see. `ideal` knows the world (simulation only), `beacons`
learns neighbours from periodic broadcasts. A strategy names the underlay it wants; a scenario may
choose another.
"""

from roamcast.registry import Registry
from roamcast.underlay.base import NoUnderlay, Oracle, Underlay, UnderlayContext
from roamcast.underlay.beacons import BeaconOptions, Beacons
from roamcast.underlay.ideal import Ideal, IdealOptions, NoOptions

__all__ = ["UNDERLAYS", "Oracle", "Underlay", "UnderlayContext", "names", "options_type"]

UNDERLAYS: Registry[UnderlayContext, Underlay] = Registry("underlay")
UNDERLAYS.add("none", NoOptions, lambda context, options: NoUnderlay())
UNDERLAYS.add("ideal", IdealOptions, Ideal)
UNDERLAYS.add("beacons", BeaconOptions, Beacons)

names = UNDERLAYS.names
options_type = UNDERLAYS.options_type
