"""Modulators: a consumer's function that runs in a broker, on the path of its events.

It filters or transforms, may keep state, and moves with that state (opportunistic overlays, section 2.1).
What is sent is a name, parameters and state, never code: every broker has the same functions registered,
and nothing is unpickled from the network. To read in this order:

- `base.py`: what a modulator is, and its form on the wire.
- `guard.py`: running one that may raise, hang or return invalid values.
- `built_in.py`: those that are always there.

An application adds its own with `MODULATORS.add(name, parameters, make)` before its node starts; every
broker that shall run it must do the same.
"""

from roamcast.modulator.base import MODULATORS, Content, Modulator, ModulatorError, ModulatorSpec, make
from roamcast.modulator.guard import Guard, Meter, Ran

__all__ = [
    "MODULATORS",
    "Content",
    "Guard",
    "Meter",
    "Modulator",
    "ModulatorError",
    "ModulatorSpec",
    "Ran",
    "make",
]
