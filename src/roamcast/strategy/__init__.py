"""Strategies: where subscriptions and events travel. One module or package each; `base` is the seam.

| name | follows |
|---|---|
| `flooding` | the baseline: everything to everyone |
"""

from roamcast.registry import Registry
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.flooding import Flooding, FloodingOptions

__all__ = ["STRATEGIES", "Strategy", "StrategyContext", "default_underlay", "names", "options_type"]

STRATEGIES: Registry[StrategyContext, Strategy] = Registry("strategy")
STRATEGIES.add("flooding", FloodingOptions, Flooding)

names = STRATEGIES.names
options_type = STRATEGIES.options_type

DEFAULT_UNDERLAYS = {"flooding": "none"}


def default_underlay(strategy: str) -> str:
    """The underlay that a strategy runs on unless the scenario names another."""
    return DEFAULT_UNDERLAYS[strategy]
