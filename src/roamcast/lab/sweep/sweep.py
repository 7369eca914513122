"""Sweeps: the runs of an experiment, brought into a folder as Spark tasks (`jobs.py`).

`Sweep` is one experiment on its way into one folder; `run_sweeps` brings any number of them there together.
With a `Replication`, each cell is run until the confidence interval of its mean is narrow enough, or a bound
is hit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from pyspark.sql import SparkSession

from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.explain import unknown
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.spark.package import code_digest
from roamcast.lab.spark.session import mapped, repeated, with_session
from roamcast.lab.spark.settings import local_cores, resolved_master
from roamcast.lab.storage import Storage
from roamcast.lab.storage.claim import FolderClaim
from roamcast.lab.sweep.check import check_figures, sample
from roamcast.lab.sweep.experiment import RUNS_MAX, Experiment, cells
from roamcast.lab.sweep.folder import FAILED, MANIFEST, OK, RunRecord, SweepFolder, SweepSegment
from roamcast.lab.sweep.jobs import Item, SweepJob, carried, run_jobs
from roamcast.lab.sweep.results import Description, Results, gathered, place_of, value_label
from roamcast.lab.sweep.summary import AxisColumns, metrics_table, runs_table, spread, summary_table

POLL_SECONDS = 0.5
POLL_SECONDS_REMOTE = 3.0  # of an object store, where every look is a request
RUNS_IN_WAVES = 100  # chosen by us: fewer are not worth a second Spark job
COMPARED = 8  # segments that one task compares
COMMIT_SECONDS = 10.0, 60.0  # processor time in a segment, few runs and many; what a dead worker loses
KEPT = "the runs that ended are kept, and --resume runs the rest"
VERIFY = ("sample", "all", "none")
# Guesses of how long a run takes, before any has ended: to begin with the longest. Measured on the league.
NODE_SECOND = 0.001  # of a simulation, per node and simulated second
SEEDS_FIRST = 5  # chosen by us: with two or three, a small spread by chance ends a cell at once
SEEDS_MAX = 100
GROWTH = 2  # how many times as many seeds a cell may have after a round


class Progress(NamedTuple):
    """How far a sweep is. `done` includes `failed`; `seconds_left` is None until a run has ended."""

    done: int
    failed: int
    total: int
    seconds_left: float | None


class SweepResult(NamedTuple):
    """What a folder holds after a sweep."""

    done: int  # runs that ended well
    failed: int
    total: int
    ran: int  # by this call
    mended: list[str] = []  # what was not as it had been written and was run again, a line each
    verified: int = 0  # runs whose figures Spark's SQL computed again
    wide: list[str] = []  # cells that have all seeds they may have and too wide an interval, a line each

    def to_line(self, out: str) -> str:
        line = f"{self.done} of {self.total} runs ended well and are in {out}; {self.ran} were run now"
        return f"{line}, {self.verified} measured again by Spark" if self.verified else line


def sweep(
    experiment: Experiment,
    out: Storage | Path | str,
    master: str | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
    verify: str = "sample",
    replication: "Replication | None" = None,
    anew: bool = False,
) -> SweepResult:
    """Run what `out` does not have yet, and make its tables.

    With `resume`, runs that failed and runs whose files have changed are run again too. Runs by other code
    are refused; with `anew` they are run again. `verify` says for how many runs Spark's SQL measures the
    tables again (`sample`, `all`, `none`); with `none`, files are compared by size alone. On a cluster, `out`
    must be storage that every worker sees; so must the scenario's folder, if the files that it names are
    large (`jobs.py`).
    """
    with Sweep(experiment, out, resume, verify, replication, anew=anew, master=master) as made:
        with made.watched(progress):
            run_sweeps(master, [made])
        return made.finish(master)


class Sweep:
    """One experiment on its way into a folder. Nothing is written before `claim`, or what mends a folder that
    is resumed. A context: at its end the folder is free for another."""

    def __init__(
        self,
        experiment: Experiment,
        out: Storage | Path | str,
        resume: bool,
        verify: str = "sample",
        replication: "Growth | None" = None,
        run_seconds: float | None = None,
        anew: bool = False,
        master: str | None = None,
    ) -> None:
        if verify not in VERIFY:
            raise InputError("verify", f"is {verify!r}; allowed: {', '.join(VERIFY)}")
        self._replication = replication
        if replication is not None:
            experiment, self._replication = replication.begun(experiment)
        self.experiment = experiment  # with `replication`, it has all seeds that a cell may have
        self.folder = SweepFolder(out)
        self._verify = verify
        # On a cluster its workers compare digests, near the storage and many at a time (`compare`).
        self.compares_here = local_cores(resolved_master(master)) is not None
        self._may = resume, anew
        self._held: FolderClaim | None = None
        self.folder.check(experiment, resume, anew)
        self._mended: list[str] = []
        if resume and self.folder.experiment() is not None:
            self._hold()
            if self.folder.code != code_digest():
                self.folder.renew()
            self._mended = self._mend()
        self._plans = experiment.runs()
        first = len(experiment.seeds) if self._replication is None else self._replication.seeds_first
        self._counts = [first] * (len(self._plans) // len(experiment.seeds))  # by cell, seeds it is run with
        records = self.folder.records()
        self._attempts: dict[int, int] = {}  # the runs of this call, with their earlier attempts
        for cell in range(len(self._counts)):
            self._want(cell, 0, records)
        self._sizes = [NODE_SECOND * experiment.weight(axes) for axes in cells(experiment.axes)]
        if run_seconds is not None:
            self._sizes = [size * run_seconds * len(self._sizes) / sum(self._sizes) for size in self._sizes]

    def missing(self) -> list[Item]:
        """The runs that are still to be run: those without a record of this sweep."""
        records = self.folder.records()
        found = self._missing(records)
        while not found and self._grow(records):
            found = self._missing(records)
        return found

    def next(self) -> list[Item]:
        """The missing runs that are to be run now. Where there are many, one run of each cell comes first:
        the guess for a cell without any ended run (`weight`) only knows its nodes and simulated time, not its
        rates and strategy. The other runs are planned by the time that those first ones took, so that the
        longest do not come last."""
        found = self.missing()
        took = self._took(self.folder.records())
        first: dict[int, Item] = {}
        for item in found:
            if self._plans[item.number].cell not in took:
                first.setdefault(self._plans[item.number].cell, item)
        are_many = len(found) >= RUNS_IN_WAVES and len(first) <= len(found) / 2
        return list(first.values()) if first and are_many else found

    def compare(self, spark: SparkSession) -> bool:
        """On a cluster: look at all that was written. Whether anything has to be run again."""
        if self.compares_here or self._verify == "none":
            return False
        storage = self.folder.storage

        def by_tasks(segments: Sequence[SweepSegment]) -> list[str | None]:
            parts = [segments[at : at + COMPARED] for at in range(0, len(segments), COMPARED)]
            found = mapped(spark, lambda part: [segment.problem(storage) for segment in part], parts)
            return [problem for part in found for problem in part]

        damaged = self.folder.mend(True, by_tasks)
        self._mended += damaged
        for cell in range(len(self._counts)) if damaged else ():
            self._want(cell, 0, self.folder.records())
        return bool(damaged)

    def claim(self) -> None:
        """From here on the folder is this experiment's."""
        self._hold()
        self.folder.claim(self._in_use())

    def __enter__(self) -> "Sweep":
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def _hold(self) -> None:
        """From here on nobody else writes. Whoever wrote until now may have changed what was found."""
        if self._held is None:
            self._held = FolderClaim(self.folder.storage)
            try:
                self.folder.check(self.experiment, *self._may)
            except BaseException:
                self.__exit__()
                raise

    def job(self) -> SweepJob:
        few, many = COMMIT_SECONDS
        attempts = {number: attempts for number, attempts in self._attempts.items() if attempts}
        seconds = min(max(few, len(self._attempts) / 100), many)
        return SweepJob(self.folder.storage, self.experiment, attempts, seconds, carried(self.experiment))

    def check_is_seen(self, committed: Sequence[str]) -> None:
        """Workers and driver must see the same storage. Manifests of other folders are passed over."""
        storage = self.folder.storage
        seen = {storage.name(segment.manifest) for segment in self.folder.segments()}
        mine = {name for name in committed if name.startswith(f"{storage.name(MANIFEST)}/")}
        if unseen := sorted(mine - seen):
            raise FileError(
                unseen[0],
                "was written by a worker and is not seen here; allowed: storage that every machine sees",
            )

    def finish(self, master: str | None = None) -> SweepResult:
        """Check what was written, make the tables, and let Spark measure some runs again."""
        if self._held is not None:
            self._held.check()
        if damaged := self._mend():
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            raise RoamcastError(f"{damaged[0]}{more}; set aside: --resume runs it again")
        segments = self.folder.segments()
        records = self.folder.records()
        if missing := self._missing(records):
            raise RoamcastError(f"{self.folder.storage}: {len(missing)} runs are missing; --resume runs them")
        self.folder.describe(self._in_use())
        whole = self.folder.whole(self.experiment)  # it may hold more seeds than were asked for now
        ended = [(plan, records[plan.run]) for plan in whole.runs() if plan.run in records]
        names = list(dict.fromkeys(name for segment in segments for name in segment.metrics))
        metrics = metrics_table(whole, ended, names)
        axes = AxisColumns(whole)
        rows = [axes.row(values) for values in cells(whole.axes)]
        summary = summary_table(metrics, names, rows, axes.fields)
        runs = runs_table(whole, ended)
        self.folder.put_made({"metrics": metrics, "summary": summary, "runs": runs})
        well = [record for _, record in ended if record.status == OK]
        with_rows = [record for record in well if record.rows]  # the others have nothing to measure
        chosen, sources = sample(self.folder.fingerprint, with_rows, self._verify)
        if chosen:
            with_session(
                master,
                lambda spark: check_figures(spark, self.folder, chosen, sources, whole.redefined()),
                "the figures in the folder are those of the single runs",
            )
        failed = len(ended) - len(well)
        return SweepResult(
            len(well),
            failed,
            max(sum(self._counts), len(ended)),
            len(self._attempts),
            self._mended,
            len(chosen),
            self._wide(records),
        )

    @contextmanager
    def watched(self, progress: Callable[[Progress], None] | None) -> Iterator[None]:
        """Call `progress` with the number of records every `POLL_SECONDS`, from a thread of its own."""
        if progress is None or not self._attempts:
            yield
            return
        look = self._look(SweepFolder(self.folder.storage), time.monotonic())
        seconds = POLL_SECONDS if self.folder.storage.path is not None else POLL_SECONDS_REMOTE
        progress(next(look))
        try:
            with repeated(seconds, lambda: progress(next(look))):
                yield
        finally:
            progress(next(look))

    def _missing(self, records: Mapping[str, RunRecord]) -> list[Item]:
        found = []
        estimates = self._estimates(records)
        for number, attempts in self._attempts.items():
            record = records.get(self._plans[number].run)
            if record is None or record.attempt <= attempts:
                found.append(Item(number, estimates[self._plans[number].cell]))
        return found

    def _want(self, cell: int, since: int, records: Mapping[str, RunRecord]) -> None:
        """Add the runs of a cell, from one of its seeds on, unless they ended well before."""
        of_cell = cell * len(self.experiment.seeds)
        for number in range(of_cell + since, of_cell + self._counts[cell]):
            record = records.get(self._plans[number].run)
            if record is None or record.status == FAILED:
                self._attempts[number] = 0 if record is None else record.attempt

    def _grow(self, records: Mapping[str, RunRecord]) -> bool:
        """More seeds for the cells that need them; whether any does. All wanted runs have ended."""
        if self._replication is None:
            return False
        before = self._counts
        self._counts = self._replication.wanted(before, self.results(records))
        for cell, count in enumerate(before):
            self._want(cell, count, records)
        return self._counts != before

    def results(self, records: Mapping[str, RunRecord] | None = None) -> Results:
        """What the folder has of the seeds in use, whatever else it holds."""
        description = msgspec.convert(self._in_use().to_dict(), Description)
        return gathered(description, self.folder.records() if records is None else records)

    def _wide(self, records: Mapping[str, RunRecord]) -> list[str]:
        """A line for each cell that hit the bound on its seeds."""
        if not isinstance(self._replication, Replication):
            return []
        lines = []
        results = self.results(records)
        for cell, axes in enumerate(results.cells):
            values = list(results.values(self._replication.metric, cell).values())
            if not self._replication.is_narrow(values):
                place = ", ".join(f"{key} = {value_label(value)}" for key, value in axes.items())
                lines.append(f"{place}: {self._replication.told(values)} with {self._counts[cell]} seeds")
        return lines

    def _in_use(self) -> Experiment:
        """The experiment with the seeds that any cell is run with."""
        return replace(self.experiment, seeds=self.experiment.seeds[: max(self._counts)])

    def _look(self, folder: SweepFolder, began: float) -> Iterator[Progress]:
        while True:
            total = sum(self._counts)
            before = total - len(self._attempts)
            records = folder.records() if folder.experiment() is not None else {}
            ran = [
                record.status
                for number, attempts in list(self._attempts.items())
                if (record := records.get(self._plans[number].run)) is not None and record.attempt > attempts
            ]
            left = (time.monotonic() - began) / len(ran) * (len(self._attempts) - len(ran)) if ran else None
            yield Progress(before + len(ran), ran.count(FAILED), total, left)

    def _took(self, records: Mapping[str, RunRecord]) -> dict[int, float]:
        """By cell, the mean of the seconds of its runs that ended well."""
        took: dict[int, list[float]] = {}
        for run, record in records.items():
            if record.status == OK:
                took.setdefault(place_of(run)[0], []).append(record.seconds)
        return {cell: sum(seconds) / len(seconds) for cell, seconds in took.items()}

    def _estimates(self, records: Mapping[str, RunRecord]) -> list[float]:
        """By cell, about how many seconds a run takes: as its runs took that ended, else by its size, in the
        proportion that the others show."""
        took = self._took(records)
        scale = sum(took.values()) / sum(self._sizes[cell] for cell in took) if took else 1.0
        return [took.get(cell, size * scale) for cell, size in enumerate(self._sizes)]

    def _mend(self) -> list[str]:
        return self.folder.mend(digests=self.compares_here and self._verify != "none")


def run_sweeps(master: str | None, sweeps: Sequence[Sweep]) -> None:
    """Run what is missing of all of them, as one set of tasks."""

    def run(spark: SparkSession) -> None:
        """Called again after Java died, it does what has not been recorded since."""
        for each in sweeps:
            each.claim()
        while True:
            while any(missing := [each.next() for each in sweeps]):
                committed = run_jobs(spark, [each.job() for each in sweeps], missing)
                for each in sweeps:
                    each.check_is_seen([name for names in committed for name in names])
                    each.folder.drop_doubles()
            damaged = [each.compare(spark) for each in sweeps]  # of all of them, whatever the first says
            if not any(damaged):
                break

    if any(each.missing() or not each.compares_here for each in sweeps):
        with_session(master, run, KEPT)


# How often each cell is run.


class Growth(Protocol):
    """Decides after each round which cells need more seeds."""

    @property
    def seeds_first(self) -> int: ...

    def begun(self, experiment: Experiment) -> tuple[Experiment, "Growth"]:
        """The experiment with as many seeds as a cell may have, and the rule that says which are run."""

    def wanted(self, counts: list[int], results: Results) -> list[int]:
        """By cell, how many seeds it should have; none has fewer than before."""


class Replication(NamedTuple):
    """`--until-half-width`, `--of`, `--seeds-max`: how often each cell is run.

    Every cell begins with the same few seeds. After each round a cell whose interval is still too wide gets
    as many more as its present spread asks for, at most as many as it has, so that few rounds are needed and
    none goes far astray. The rule looks at results before it decides to stop, so an interval that is called
    95% covers a little less (`tests/lab/sweep/test_replication.py` measures it; Chow and Robbins 1965 for the
    limit of narrow ones).
    """

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

    def wanted(self, counts: list[int], results: Results) -> list[int]:
        return [
            self.wanted_by(count, list(results.values(self.metric, cell).values()))
            for cell, count in enumerate(counts)
        ]

    def wanted_by(self, seeds: int, values: Sequence[float]) -> int:
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
