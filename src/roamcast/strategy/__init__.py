"""Strategies: where subscriptions and events travel. One module or package each; `base` has their interface.

| name | follows |
|---|---|
| `flooding` | the baseline: everything to everyone |
| `epidemic` | ours: flooding with fewer copies, and anti-entropy for what was missed or is memorized |
| `directed` | ours: epidemic's parts, steered by who wants what, where few want an event |
| `chapar` | multipoint relays as brokers, node vectors, memorized events (Khakpour and Demeure) |
| `odmrp` | content-based multicast over an on-demand mesh; plain ODMRP as baseline (Yoneki and Bacon) |
| `opportunistic` | a broker overlay and home brokers that follow the network; modulators (Chen and Schwan) |
| `tree` | an acyclic overlay and content-based routing on it (the acyclic-overlay work) |
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from roamcast.errors import ScenarioError
from roamcast.explain import shown
from roamcast.registry import Registry
from roamcast.strategy.base import NeedsOfUnderlay, Strategy, StrategyContext, TunesUnderlay
from roamcast.underlay import UNDERLAYS

__all__ = [
    "LIVE_DEFAULT",
    "STRATEGIES",
    "Strategy",
    "StrategyAbilities",
    "StrategyContext",
    "TunesUnderlay",
    "check_underlay",
    "default_underlay",
    "names",
    "options_type",
]


class StrategyAbilities(NamedTuple):
    """What a strategy declares where it is registered, so that nobody else has to know its name."""

    default_underlay: str = "none"  # what it runs on unless a file names another
    runs_modulators: bool = False  # its brokers run consumers' functions
    keeps_order: bool = False  # it hands over the events of each producer in their order
    takes_advertisements: bool = False  # it prepares for events of a type before there is one
    carries_sealed: bool = False  # it carries events whose content relays cannot read (`Strategy.seal_id`)
    stores_everywhere: bool = False  # every node keeps every memorized event that it can be given
    # Promises: an accepted memorized event reaches each matching subscriber within its lifetime, although
    survives_cut: bool = False  # the subscriber was out of reach when it was published
    survives_crash: bool = False  # the nodes that hold it, and the subscriber's, were killed and restarted
    survives_full: bool = False  # stores on the way had no room for it for a while
    survives_relays: bool = False  # stores on the way are always full: they push out nothing that others lack
    survives_leave: bool = False  # its publisher is out of reach by then: others carry it
    # Defaults of live nodes (whose numbers follow from their keys), where they differ from a simulation's.
    live_options: Mapping[str, Any] = {}

    @property
    def hands_over(self) -> bool:
        """Whether it keeps what an acknowledgement promises; else nothing is accepted that needs one."""
        return self.survives_cut and self.survives_crash and self.survives_full

    @property
    def order(self) -> str:
        """For whom each publisher's memorized events come in their order (`broker/order.py`)."""
        if not self.hands_over:
            return "no"
        return "all" if self.stores_everywhere else "topics"


STRATEGIES: Registry[StrategyContext, Strategy, StrategyAbilities] = Registry(
    "strategy", "roamcast.strategies", StrategyAbilities
)
STRATEGIES.declare(
    "flooding",
    "roamcast.strategy.flooding:FloodingOptions",
    "roamcast.strategy.flooding:Flooding",
    stores_everywhere=True,
    carries_sealed=True,
)
STRATEGIES.declare(
    "epidemic",
    "roamcast.strategy.epidemic:EpidemicOptions",
    "roamcast.strategy.epidemic:Epidemic",
    stores_everywhere=True,
    default_underlay="beacons",
    carries_sealed=True,
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
    survives_relays=True,
    survives_leave=True,
)
STRATEGIES.declare(
    "directed",
    "roamcast.strategy.directed:DirectedOptions",
    "roamcast.strategy.directed:Directed",
    stores_everywhere=True,
    default_underlay="beacons",
    carries_sealed=True,
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
    survives_relays=True,
    survives_leave=True,
)
STRATEGIES.declare(
    "chapar",
    "roamcast.strategy.chapar:ChaparOptions",
    "roamcast.strategy.chapar:Chapar",
    default_underlay="olsr",
    carries_sealed=True,
    live_options={"node_vectors": "bloom"},  # numbers follow from keys: no bitmap indexed by them
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
    survives_leave=True,
)
STRATEGIES.declare(
    "odmrp",
    "roamcast.strategy.odmrp:OdmrpOptions",
    "roamcast.strategy.odmrp:Odmrp",
    takes_advertisements=True,
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
    survives_leave=True,
)
STRATEGIES.declare(
    "opportunistic",
    "roamcast.strategy.opportunistic:OpportunisticOptions",
    "roamcast.strategy.opportunistic:Opportunistic",
    default_underlay="olsr",
    runs_modulators=True,
    keeps_order=True,
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
    survives_leave=True,
)
STRATEGIES.declare(
    "tree",
    "roamcast.strategy.tree.parameters:TreeOptions",
    "roamcast.strategy.tree.strategy:Tree",
    default_underlay="beacons",
    live_options={"preset": "prompt"},  # heals in a quarter of the time (docs/protocols/tree.md)
    survives_cut=True,
    survives_crash=True,
    survives_full=True,
)

LIVE_DEFAULT = "epidemic"
"""What a live node runs unless its file names another."""

names = STRATEGIES.names
options_type = STRATEGIES.options_type


def default_underlay(strategy: str) -> str:
    """The underlay that a strategy runs on unless the scenario names another."""
    return STRATEGIES.declared(strategy).default_underlay


def check_underlay(strategy: str, options: Any, underlay: str) -> None:
    """`ScenarioError` for an underlay that cannot serve a strategy with these options."""
    needs = options.underlay_needs() if isinstance(options, NeedsOfUnderlay) else {}
    for need, reason in needs.items():
        able = [name for name in UNDERLAYS.names() if getattr(UNDERLAYS.declared(name), need)]
        if underlay not in able:
            allowed = ", ".join(able)
            raise ScenarioError(
                "underlay.name",
                f"is {shown(underlay)}, but {strategy} needs an underlay {reason}; allowed: {allowed}",
            )
