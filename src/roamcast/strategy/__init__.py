"""Strategies: where subscriptions and events travel. One module or package each; `base` is the seam.

| name | follows |
|---|---|
| `flooding` | the baseline: everything to everyone |
| `epidemic` | ours: flooding that spares copies, and anti-entropy for what was missed or is memorized |
| `chapar` | multipoint relays as brokers, node vectors, memorized events (Khakpour and Demeure) |
| `odmrp` | content-based multicast over an on-demand mesh; plain ODMRP as baseline (Yoneki and Bacon) |
| `opportunistic` | a broker overlay and home brokers that follow the network; modulators (Chen and Schwan) |
| `tree` | an acyclic overlay and content-based routing on it (the acyclic-overlay work) |
"""

from roamcast.registry import Registry
from roamcast.strategy.base import Strategy, StrategyContext, TunesUnderlay
from roamcast.strategy.chapar import Chapar, ChaparOptions
from roamcast.strategy.epidemic import Epidemic, EpidemicOptions
from roamcast.strategy.flooding import Flooding, FloodingOptions
from roamcast.strategy.odmrp import Odmrp, OdmrpOptions
from roamcast.strategy.opportunistic import Opportunistic, OpportunisticOptions
from roamcast.strategy.tree.strategy import Tree, TreeStrategyOptions

__all__ = [
    "STRATEGIES",
    "Strategy",
    "StrategyContext",
    "TunesUnderlay",
    "default_underlay",
    "names",
    "options_type",
]

STRATEGIES: Registry[StrategyContext, Strategy] = Registry("strategy")
STRATEGIES.add("flooding", FloodingOptions, Flooding)
STRATEGIES.add("epidemic", EpidemicOptions, Epidemic)
STRATEGIES.add("chapar", ChaparOptions, Chapar)
STRATEGIES.add("odmrp", OdmrpOptions, Odmrp)
STRATEGIES.add("opportunistic", OpportunisticOptions, Opportunistic)
STRATEGIES.add("tree", TreeStrategyOptions, Tree)

names = STRATEGIES.names
options_type = STRATEGIES.options_type

DEFAULT_UNDERLAYS = {
    "chapar": "olsr",
    "epidemic": "beacons",
    "flooding": "none",
    "odmrp": "none",
    "opportunistic": "olsr",
    "tree": "beacons",
}


def default_underlay(strategy: str) -> str:
    """The underlay that a strategy runs on unless the scenario names another."""
    return DEFAULT_UNDERLAYS[strategy]
