"""Studies: published experiments that are not a run of our network, each with a model of its own.

A figure's file names one (`study = "channels"`) instead of a scenario. Its axes and profiles then set the
study's parameters, and its quantities are formulas over what the study computes, seed by seed.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import roamcast
from roamcast.errors import ScenarioError
from roamcast.explain import converted, unknown
from roamcast.lab.sweep.experiment import Experiment, cells
from roamcast.lab.sweep.folder import OK
from roamcast.lab.sweep.results import Description, Results, Run

MODULES = {
    "channels": "roamcast.lab.studies.channels",
    "balancing": "roamcast.lab.studies.balancing",
    "home_crash": "roamcast.lab.studies.home_crash",
    "overload": "roamcast.lab.studies.overload",
    "relocation": "roamcast.lab.studies.relocation",
    "testbed": "roamcast.lab.studies.testbed",
    "timeline": "roamcast.lab.studies.timeline",
}
"""Where each study is defined; loaded when a figure names it."""


class Study(NamedTuple):
    name: str
    parameters: type[msgspec.Struct]
    # Takes the parameters and a seed; returns the figures by name, None for a figure without a value.
    run: Callable[[Any, int], Mapping[str, float | None]]
    figures: tuple[str, ...]


class Studies:
    def __init__(self) -> None:
        self._studies: dict[str, Study] = {}

    def add(self, study: Study) -> None:
        assert study.name not in self._studies, study.name
        self._studies[study.name] = study

    def named(self, name: str, where: str) -> Study:
        if name not in self._studies and name in MODULES:
            import_module(MODULES[name])
        if name not in self._studies:
            known = sorted({*self._studies, *MODULES})
            raise ScenarioError(where, unknown(name, known, f"is {name!r}, no study"))
        return self._studies[name]


STUDIES = Studies()


class Computed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`study.json` in a figure's folder: the results, so that they are not computed again."""

    fingerprint: str
    figures: dict[str, list[list[float | None]]]  # by name, a list per cell, with a value per seed


def study_experiment(
    study: Study,
    name: str,
    parameters: Mapping[str, Any],
    axes: Mapping[str, Any],
    replications: int,
    where: str,
) -> Experiment:
    """As `experiment_from`, for a study: checks every cell and runs nothing."""
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{where}: axes.{key}", "is no list of values, the only axis a study has")
    if not axes:
        raise ScenarioError(f"{where}: axes", "has no axis; allowed: at least one")
    for cell in cells(axes):
        _parameters(study, {**parameters, **cell}, where)
    seeds = tuple(range(1, replications + 1))
    values_of = {key: tuple(values) for key, values in axes.items()}
    return Experiment(name, dict(parameters), Path(), values_of, seeds, {})


def study_results(
    study: Study,
    experiment: Experiment,
    computed: bytes | None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Results, bytes]:
    """The figures, from `computed` if that is of the same experiment, else computed; and what to store.

    `progress` is called with the number of runs done and of all runs.
    """
    known = _read(computed, experiment.fingerprint, study)
    found = known.figures if known is not None else _run(study, experiment, progress)
    plans = experiment.runs()
    results = Results(
        Description(
            experiment=experiment.name,
            roamcast=roamcast.__version__,
            scenario=experiment.tables,
            axes={key: list(values) for key, values in experiment.axes.items()},
            seeds=list(experiment.seeds),
        ),
        [Run(plan.run, plan.cell, plan.seed, OK, "") for plan in plans],
        {
            name: {
                cell: {s: v for s, v in zip(experiment.seeds, row, strict=True) if v is not None}
                for cell, row in enumerate(rows)
            }
            for name, rows in found.items()
        },
    )
    return results, msgspec.json.encode(Computed(fingerprint=experiment.fingerprint, figures=found))


def _run(
    study: Study, experiment: Experiment, progress: Callable[[int, int], None] | None
) -> dict[str, list[list[float | None]]]:
    figures: dict[str, list[list[float | None]]] = {name: [] for name in study.figures}
    combinations = list(cells(experiment.axes))
    total = len(combinations) * len(experiment.seeds)
    for number, cell in enumerate(combinations):
        parameters = _parameters(study, {**experiment.tables, **cell}, experiment.name)
        for name in study.figures:
            figures[name].append([])
        for at, seed in enumerate(experiment.seeds):
            for name, value in study.run(parameters, seed).items():
                assert value is None or math.isfinite(value), (study.name, name, cell, seed)
                figures[name][-1].append(value)
            if progress is not None:
                progress(number * len(experiment.seeds) + at + 1, total)
    return figures


def _read(computed: bytes | None, fingerprint: str, study: Study) -> Computed | None:
    """The stored results; None if they are missing, unreadable or of another experiment."""
    try:
        known = msgspec.json.decode(computed or b"", type=Computed)
    except msgspec.MsgspecError:
        return None
    is_same = known.fingerprint == fingerprint and known.figures.keys() == set(study.figures)
    return known if is_same else None


def _parameters(study: Study, values: Mapping[str, Any], where: str) -> msgspec.Struct:
    """The parameters in the study's own type, or a `ScenarioError` that begins with `where`."""
    try:
        made: msgspec.Struct = converted(dict(values), study.parameters)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error.where}", error.problem) from None
    return made
