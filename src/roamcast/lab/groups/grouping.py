"""Global grouping over recorded subscriptions, on Spark: which number of groups would have cost least?

The grouping is that of the publisher's broker (`strategy/odmrp/grouping/k_means.py`), K-means over summary
vectors, but with Spark's own K-means, so that it scales to any number of brokers, and for several numbers of
groups. What each would have cost follows from the recorded events:

    deliveries(k) = over events and groups whose summary matches, the group's members but the publisher
    matched       = those among them with a subscription that matches exactly; the same for every k
    noise(k)      = deliveries(k) - matched
    control(k)    = groups(k) * refreshes, one per publisher and refresh interval while it publishes
    total(k)      = deliveries(k) + control_cost * control(k)

Few groups cause noise, many cause control traffic (section 3.4). Groups are static here, made of all that a
broker ever subscribed to; the paths of packets are left out, so a delivery and a refresh cost the same
everywhere.

A folder holds one run (`simulate --out`) or many (`sweep`): brokers of all runs are clustered together, but
an event reaches only members of its own run.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.ml.clustering import KMeans
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from roamcast.columns import in_columns
from roamcast.errors import FileError, InputError
from roamcast.lab.groups.job import (
    BROKERS,
    GROUPS,
    MATCHED,
    REACHED,
    Reach,
    Summarise,
    Unite,
    count_matched,
)
from roamcast.lab.notebook import RecordedFolder, recorded
from roamcast.lab.spark.session import is_remote, with_session
from roamcast.lab.storage import Storage
from roamcast.lab.storage.sealed import check_is_free, put_table
from roamcast.strategy.odmrp.summary.geometry import DEFAULT, SummaryOptions
from roamcast.trace import Published, Record, Subscribed
from roamcast.units import micros

SIZES_SHOWN = 8


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """What traffic costs, in deliveries of one event to one member."""

    refresh_interval: float = 5.0  # seconds; section 4.1
    # One group's share of a refresh: the Join Tables that come back and the entries they carry. The Join
    # Request itself is flooded once for all groups of a publisher. Chosen by us; `--control-cost` sets it.
    control_cost: float = 10.0


class GroupingCost(NamedTuple):
    """One number of groups."""

    k: int
    groups: int  # K-means may leave some empty
    sizes: tuple[int, ...]  # members of each, the largest first; in a sweep, of all runs together
    matched: int
    noise: int
    control: int
    total: float


class Grouping(NamedTuple):
    costs: list[GroupingCost]  # by k
    best: int  # the k of the smallest total; the smaller one of two that are equal
    brokers: int
    events: int

    def to_text(self) -> str:
        heads = ("k", "groups", "matched", "noise", "control", "total", "sizes")
        rows = [
            (
                each.k,
                each.groups,
                each.matched,
                each.noise,
                each.control,
                f"{each.total:.0f}",
                _sizes(each.sizes),
            )
            for each in self.costs
        ]
        table = [heads, *(tuple(map(str, row)) for row in rows)]
        lines = in_columns(table, words=[len(heads) - 1])
        ending = f"{self.brokers} brokers, {self.events} events; {self.best} groups would have cost least"
        return "\n".join([*lines, ending])

    def to_json(self) -> str:
        costs = [cost._asdict() for cost in self.costs]
        return msgspec.json.encode(self._asdict() | {"costs": costs}).decode()


def cost_of(
    k: int, groups: pa.Table, matched: int, reached: int, refreshes: dict[str, int], model: CostModel
) -> GroupingCost:
    """The cost of one number of groups: `groups` as `grouping_job.GROUPS`, `refreshes` of each run."""
    sizes: dict[int, int] = {}
    control = 0
    for row in groups.to_pylist():
        if row["k"] == k:
            sizes[row["number"]] = sizes.get(row["number"], 0) + row["members"]
            control += refreshes.get(row["run"], 0)
    total = reached + model.control_cost * control
    ordered = tuple(sorted(sizes.values(), reverse=True))
    return GroupingCost(k, len(sizes), ordered, matched, reached - matched, control, total)


def _sizes(sizes: tuple[int, ...]) -> str:
    more = ["…"] if len(sizes) > SIZES_SHOWN else []
    return " ".join([*map(str, sizes[:SIZES_SHOWN]), *more])


K_MAX = 256  # the bounds here are chosen by us; they limit time and the memory of a worker
ITERATIONS_MAX = 20  # of K-means
MEMBERS_PART = 20_000  # brokers whose filters one worker holds at a time
EVENTS_PART = 50_000  # events that it tries against them

WANTING = "size(places) > 0"  # a broker whose filters no event can match is in no group

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""What is being done, steps done and steps in all."""


def group_subscriptions(
    folder: Path | str,
    *,
    ks: Iterable[int] = range(1, 9),
    out: Path | str | None = None,
    model: CostModel | None = None,
    options: SummaryOptions = DEFAULT,
    seed: int = 1,
    master: str | None = None,
    progress: OnProgress | None = None,
) -> Grouping:
    """Group the brokers of a recorded run or sweep into each number of `ks`, and say what each would cost.

    `out`: a new folder for `costs.parquet` and `members.parquet` (k, run, node and its group).
    """
    model = _checked(model or CostModel())
    wanted = _checked_ks(ks)
    target = None if out is None else Storage.open(out)
    if target is not None:
        check_is_free(target)
    found = recorded(folder)

    def group(spark: SparkSession) -> Grouping:
        if is_remote(spark):
            raise InputError("master", "is Spark Connect's; groups need a session of their own")
        work = _Work(spark, found, model, options, seed, progress or (lambda step, done, total: None))
        try:
            grouping, members = work.run(wanted)
            if target is not None:
                _write(grouping, members, target)
            return grouping
        finally:
            work.close()

    return with_session(master, group)


def parse_ks(text: str) -> list[int]:
    """`3`, `1..8` or `1,2,4`."""
    try:
        if ".." in text:
            first, last = text.split("..")
            return _checked_ks(range(int(first), int(last) + 1))
        return _checked_ks(map(int, text.split(",")))
    except ValueError:
        raise InputError("k", f"is {text!r}; allowed: a number, a range 1..8 or a list 1,2,4") from None


class _Work:
    def __init__(
        self,
        spark: SparkSession,
        folder: RecordedFolder,
        model: CostModel,
        options: SummaryOptions,
        seed: int,
        progress: OnProgress,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._model = model
        self._options = options
        self._seed = seed
        self._progress = progress
        self._tables: list[DataFrame] = []

    def run(self, ks: Sequence[int]) -> tuple[Grouping, DataFrame]:
        self._progress("summaries", 0, 1)
        subscriptions = self._kept(self._table(Subscribed))
        publications = self._kept(_for_subscribers(self._table(Published)))
        brokers = self._kept(_summaries(subscriptions, self._options))
        count, events = self._checked_counts(brokers, publications)
        ks = tuple(k for k in ks if k <= count) or (1,)
        assigned = self._kept(self._assigned(brokers.where(WANTING), ks))
        groups = _groups(assigned, self._options, ks)
        self._progress("costs", 0, 2)
        reached = self._reached(publications, assigned, groups, ks)
        self._progress("costs", 1, 2)
        matched = _matched(subscriptions, publications, count, events)
        refreshes = _refreshes(publications, self._model)
        self._progress("costs", 2, 2)
        costs = [cost_of(k, groups, matched, reached[k], refreshes, self._model) for k in ks]
        best = min(costs, key=lambda each: (each.total, each.k)).k
        members = assigned.select("run", "node", F.posexplode("groups").alias("at", "group")).withColumn(
            "k", F.element_at(F.array(*map(F.lit, ks)), F.col("at") + 1)
        )
        return Grouping(costs, best, count, events), members.select("k", "run", "node", "group")

    def close(self) -> None:
        for table in self._tables:
            table.unpersist()

    def _table(self, kind: type[Record]) -> DataFrame:
        """The table with a column `run`, which is empty where the folder holds a single run."""
        found = self._folder.spark(self._spark, kind.TABLE)
        return found if "run" in found.columns else found.withColumn("run", F.lit(""))

    def _kept(self, table: DataFrame) -> DataFrame:
        """Computed once, until `close`."""
        self._tables.append(table.persist())
        return table

    def _checked_counts(self, brokers: DataFrame, publications: DataFrame) -> tuple[int, int]:
        found = brokers.agg(F.min("problem"), F.count_if(F.expr(WANTING))).collect()
        problem, count = found[0]
        if problem is not None:
            raise FileError(str(self._folder.storage), problem)
        events = publications.count()
        if count == 0:
            raise FileError(str(self._folder.storage), "holds no subscription that an event can match")
        return count, events

    def _assigned(self, brokers: DataFrame, ks: Sequence[int]) -> DataFrame:
        """The brokers with a column `groups`: each broker's group for each of `ks`."""
        geometry = self._options.geometry
        dimension = geometry.types.bits + geometry.associations.bits + geometry.element_bits
        vector = F.udf(_SparseVector(dimension), VectorUDT(), useArrow=False)  # Arrow knows no vectors
        # Sorted: K-means draws its first centroids by position.
        points = brokers.withColumn("features", vector("places", "values")).sortWithinPartitions(
            "run", "node"
        )
        points = self._kept(points)
        assigned = points
        for done, k in enumerate(ks):
            self._progress("k-means", done, len(ks))
            if k == 1:
                assigned = assigned.withColumn("k1", F.lit(0))
                continue
            means = KMeans(k=k, seed=self._seed, maxIter=ITERATIONS_MAX, predictionCol=f"k{k}")
            assigned = means.fit(points).transform(assigned)
        self._progress("k-means", len(ks), len(ks))
        return assigned.select("run", "node", "summary", F.array(*(f"k{k}" for k in ks)).alias("groups"))

    def _reached(
        self, publications: DataFrame, assigned: DataFrame, groups: pa.Table, ks: tuple[int, ...]
    ) -> dict[int, int]:
        own = assigned.select("run", F.col("node").alias("publisher"), "groups")
        found = (
            publications.join(own, ["run", "publisher"], "left")
            .mapInArrow(Reach(groups, self._options, ks), from_arrow_schema(REACHED))
            .groupBy("k")
            .agg(F.sum("reached").alias("reached"), F.min("problem").alias("problem"))
            .collect()
        )
        for row in found:
            if row["problem"] is not None:
                raise FileError(str(self._folder.storage), row["problem"])
        return dict.fromkeys(ks, 0) | {row["k"]: row["reached"] for row in found}


# Steps.


def _summaries(subscriptions: DataFrame, options: SummaryOptions) -> DataFrame:
    """One row for each broker that ever subscribed: BROKERS."""
    return (
        subscriptions.where("stands")
        .groupBy("run", "node")
        .agg(F.sort_array(F.collect_set("filter")).alias("filters"))
        .mapInArrow(Summarise(options), from_arrow_schema(BROKERS))
    )


def _groups(assigned: DataFrame, options: SummaryOptions, ks: tuple[int, ...]) -> pa.Table:
    """GROUPS, on the driver: at most one row per group and run. Each partition first unites its own members,
    so that no single worker has to unite a group of a million members."""
    parts = assigned.mapInArrow(Unite(options, ks), from_arrow_schema(GROUPS))
    united = parts.repartition("k", "run", "number").mapInArrow(Unite(options), from_arrow_schema(GROUPS))
    return united.toArrow()


def _matched(subscriptions: DataFrame, publications: DataFrame, brokers: int, events: int) -> int:
    """Counts each part of the brokers against each part of the events of its run. No broker is in two parts,
    so the counts can be added."""
    shares, parts = -(-brokers // MEMBERS_PART), -(-max(events, 1) // EVENTS_PART)
    left = subscriptions.withColumn("share", F.pmod(F.hash("node"), F.lit(shares))).withColumn(
        "part", F.explode(F.array(*(F.lit(part) for part in range(parts))))
    )
    right = publications.withColumn("part", F.pmod(F.hash("publisher", "sequence"), F.lit(parts))).withColumn(
        "share", F.explode(F.array(*(F.lit(share) for share in range(shares))))
    )
    keys = ("run", "share", "part")
    counted = (
        left.groupBy(*keys)
        .cogroup(right.groupBy(*keys))
        .applyInArrow(count_matched, from_arrow_schema(MATCHED))
    )
    total = counted.agg(F.sum("matched")).first()
    return int(total[0] or 0) if total is not None else 0


def _refreshes(publications: DataFrame, model: CostModel) -> dict[str, int]:
    """Refreshes of each run. A publisher refreshes from its first event to its last, both included."""
    interval = micros(model.refresh_interval)
    spans = publications.groupBy("run", "publisher").agg((F.max("t") - F.min("t")).alias("span"))
    counted = spans.groupBy("run").agg(F.sum(F.floor(F.col("span") / F.lit(interval)) + 1).alias("refreshes"))
    return {row["run"]: int(row["refreshes"]) for row in counted.collect()}


class _SparseVector:
    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def __call__(self, places: list[int], values: list[float]) -> SparseVector:
        return Vectors.sparse(self._dimension, places, values)


# Around the job.


def _checked(model: CostModel) -> CostModel:
    if not 0.001 <= model.refresh_interval <= 86_400:
        raise InputError("refresh", f"is {model.refresh_interval}; allowed: seconds, 0.001 to 86400")
    if not 0 <= model.control_cost <= 1e9:
        raise InputError("control cost", f"is {model.control_cost}; allowed: 0 to 1e9")
    return model


def _checked_ks(ks: Iterable[int]) -> list[int]:
    wanted = sorted(set(ks))
    if not wanted or wanted[0] < 1 or wanted[-1] > K_MAX:
        raise InputError("k", f"is {wanted or 'empty'}; allowed: numbers of groups from 1 to {K_MAX}")
    return wanted


def _for_subscribers(publications: DataFrame) -> DataFrame:
    """Point-to-point events go to their destinations, whatever the groups are."""
    return publications.where("multimode OR size(destinations) = 0")


def _write(grouping: Grouping, members: DataFrame, target: Storage) -> None:
    """The costs last: with them it is whole."""
    rows = [cost._asdict() | {"best": cost.k == grouping.best} for cost in grouping.costs]
    put_table(target, "members.parquet", members.orderBy("k", "run", "node").toArrow())
    put_table(target, "costs.parquet", pa.Table.from_pylist(rows))
