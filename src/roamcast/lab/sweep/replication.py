"""How often each cell is run: until the confidence interval of its mean is narrow enough, or a bound is hit.

Every cell begins with the same few seeds. After each round a cell whose interval is still too wide gets as
many more as its present spread asks for, at most as many as it has, so that few rounds are needed and none
goes far astray. The rule looks at results before it decides to stop, so an interval that is called 95% covers
a little less (`docs/study/lab.md` has measured figures; Chow and Robbins 1965 for the limit of narrow ones).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from roamcast.errors import InputError
from roamcast.explain import unknown
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.sweep.experiment import RUNS_MAX, Experiment
from roamcast.lab.sweep.summary import spread

SEEDS_FIRST = 5  # chosen by us: with two or three, a small spread by chance ends a cell at once
SEEDS_MAX = 100
GROWTH = 2  # how many times as many seeds a cell may have after a round


class Replication(NamedTuple):
    """`--until-half-width`, `--of`, `--seeds-max`."""

    half_width: float
    metric: str = "delivery_ratio"
    seeds_max: int = SEEDS_MAX
    seeds_first: int = SEEDS_FIRST

    def check(self) -> None:
        if not self.half_width > 0 or math.isinf(self.half_width):
            raise InputError("--until-half-width", f"is {self.half_width:g}; allowed: a number above 0")
        if self.metric not in METRICS:
            raise InputError("--of", unknown(self.metric, list(METRICS), f"is {self.metric!r}, no metric"))
        if self.seeds_max < self.seeds_first:
            first = f"{self.seeds_first}, with which every cell begins"
            raise InputError("--seeds-max", f"is {self.seeds_max}; allowed: at least {first}")

    def begun(self, experiment: Experiment) -> tuple[Experiment, "Replication"]:
        """The experiment with all seeds that a cell may have, the file's own first; and the rule for it."""
        rule = self._replace(seeds_first=max(self.seeds_first, len(experiment.seeds)))
        rule.check()
        most = RUNS_MAX // math.prod(map(len, experiment.axes.values()))
        if rule.seeds_max > most:
            raise InputError("--seeds-max", f"is {rule.seeds_max}; allowed for so many cells: at most {most}")
        more = range(max(experiment.seeds) + 1, max(experiment.seeds) + 1 + rule.seeds_max)
        return replace(experiment, seeds=(*experiment.seeds, *more)[: rule.seeds_max]), rule

    def is_narrow(self, values: Sequence[float]) -> bool:
        return _half(values) <= self.half_width

    def wanted(self, seeds: int, values: Sequence[float]) -> int:
        """How many seeds a cell should have that has run with so many, `values` being what they gave."""
        if seeds < self.seeds_first:
            return self.seeds_first
        if self.is_narrow(values):
            return seeds
        half = _half(values)
        needed = math.inf if math.isinf(half) else math.ceil(len(values) * (half / self.half_width) ** 2)
        return min(max(seeds + 1, int(min(needed, GROWTH * seeds))), self.seeds_max)

    def told(self, values: Sequence[float]) -> str:
        """`delivery_ratio 0.91 ± 0.034`"""
        mean = spread(values).mean
        return (
            f"{self.metric} has no value"
            if mean is None
            else f"{self.metric} {mean:.4g} ± {_half(values):.2g}"
        )


def _half(values: Sequence[float]) -> float:
    """Half the width of the interval; infinite where there is none."""
    found = spread(values)
    return math.inf if found.mean is None or found.ci_high is None else found.ci_high - found.mean
