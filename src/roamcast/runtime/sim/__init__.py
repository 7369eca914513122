"""The simulator: virtual time, deterministic to the last record.

Read `engine` (the queue of future actions), `links` (who hears whom now), the media `ideal`, `disk`
and `csma` (one interface, in `medium`), `host` (the port that layers see), and `simulation`, which
plays a scenario's plan, workload and faults over them.
"""

from roamcast.runtime.sim.simulation import Simulation, SimulationResult

__all__ = ["Simulation", "SimulationResult"]
