"""Scenario files: a world, who does what in it, and which protocol runs there.

Read in this order: `model` (the tables and their keys), `load` (TOML, settings, errors), `checks` (what
keys mean together), `roamcast.explain` (the texts of errors), `workload` and `faults` (schedules computed
from the seed), `world` (motion and contact plan). `docs/study/scenario.md` is the users' page.
"""

from roamcast.explain import read_tables
from roamcast.scenario.load import load_scenario, parsed_override, scenario_from, with_settings
from roamcast.scenario.model import Scenario

__all__ = ["Scenario", "load_scenario", "parsed_override", "read_tables", "scenario_from", "with_settings"]
