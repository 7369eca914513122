"""The one place that makes a Spark session: embedded by default, on a cluster when given its master.

One session per process: the first takes seconds, asking again costs nothing; a session that runs already,
such as a notebook's, is used as it is. Ours is quiet: whatever the Java process and the Python workers write
goes to an unnamed file, and the end of that file becomes part of the error when a session cannot start.

Workers run the interpreter that `PYSPARK_PYTHON` names, by default this one; `--archives` sends them a packed
environment. The package itself is always sent (`ship`). With `sc://host:port` (Spark Connect) there is
no Java here at all, so jobs use neither `sparkContext` nor RDDs.

Java can die during a job: its heap is full, or the system kills it because memory is short. `with_session`
then starts another one and repeats the work.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, SparkFiles, cloudpickle
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from roamcast.errors import InputError, RoamcastError
from roamcast.lab.spark import settings as user
from roamcast.lab.spark.causes import cause_in_a_line
from roamcast.lab.spark.java import find_java
from roamcast.lab.spark.package import package_zip
from roamcast.lab.spark.settings import (
    TASK_FAILURES_MAX,
    SparkSettings,
    check_answers,
    is_connect,
    local_cores,
    on_loopback,
    resolved_master,
)

JAVA_ENDS_SECONDS = 2.0  # chosen by us: Java's connections break a moment before its process has ended
LOOPBACK = "127.0.0.1"
DRIVER_MEMORY = "2g"  # at most; Spark's own SPARK_DRIVER_MEMORY overrides it
Given = TypeVar("Given")
Made = TypeVar("Made")
# An embedded session lives for minutes, and its time goes into starting up, planning and waiting for Python.
# Measured on 2 cores, for start and the metrics of a sweep: 29 s of processor time instead of 50 s.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LAUNCH = ("spark.master", "spark.driver.", "spark.log.", "spark.archives")  # what Java must know at its start

_COMPLAINT = re.compile(r"error|exception|invalid|could not|cannot", re.IGNORECASE)
_GREETING = re.compile(r"Setting .*log level|Using Spark's .*log4j")  # what Java says at every start
_LAST_WORDS = re.compile(r"shut ?down|stopped SparkContext|OutOfMemoryError", re.IGNORECASE)  # of Java
_CONNECT_MODE = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")  # set by PySpark; they outlive a session


def session(master: str | None = None, settings: SparkSettings | None = None) -> SparkSession:
    """The session of this process, started if there is none.

    `master` None: the running session, else an embedded one with all cores of this machine. If the running
    session has another master, it is stopped and a new one started. `settings`, by default those that the
    command was given, are for a new session only.
    """
    if _java_is_gone():
        _forget_java()
    running = _running()
    if running is not None:
        if master is None or _master_of(running) == resolved_master(master):
            _ship_if_needed(running)
            return running
        stop()
    chosen = resolved_master(master)
    settings = user.asked if settings is None else settings
    made = _connected(chosen, settings) if is_connect(chosen) else _started(chosen, settings)
    _ship_if_needed(made)
    return made


def with_session(master: str | None, work: Callable[[SparkSession], Made], advice: str = "") -> Made:
    """The result of `work`. It must be repeatable: if Java dies, it is called once more with a new session.
    An error of Spark becomes one line, followed by `advice`."""
    with spark_errors_in_a_line(advice):
        try:
            return work(session(master))
        except (Py4JError, PySparkException, ConnectionError) as error:
            if not _java_ended_with(error):
                raise
        return work(session(master))


def stop() -> None:
    """End the session of this process, if there is one; its Java process stays for the next."""
    running = None if _java_is_gone() else _running()
    if running is not None:
        running.stop()
    if is_remote(running):
        for name in _CONNECT_MODE:
            os.environ.pop(name, None)


def cores_of(spark: SparkSession) -> int | None:
    """How many cores the session has for as long as it lives; None for a cluster's, which come and go."""
    return None if is_remote(spark) else local_cores(_master_of(spark))


# Sessions that run.


def _running() -> SparkSession | None:
    """The session of this process, of either kind, if it lives."""
    connect: Any = sys.modules.get("pyspark.sql.connect.session")
    remote = connect and (connect.SparkSession.getActiveSession() or connect.SparkSession._default_session)
    if remote is not None and not remote.is_stopped:
        return remote  # type: ignore[no-any-return]
    if SparkContext._active_spark_context is None:
        return None
    running = SparkSession._instantiatedSession or SparkSession.getActiveSession()
    return running if running is not None and running.sparkContext._jsc is not None else None


def is_remote(spark: SparkSession | None) -> bool:
    """Whether it is a session of Spark Connect, which has no `sparkContext`."""
    return spark is not None and "connect" in type(spark).__module__


def _master_of(spark: SparkSession) -> str:
    return str(getattr(spark, "_roamcast_master", "sc://") if is_remote(spark) else spark.sparkContext.master)


def _ship_if_needed(spark: SparkSession) -> None:
    """Workers of our own embedded session run this interpreter, which has the package."""
    if is_remote(spark) or SparkContext._gateway is not _ours or local_cores(_master_of(spark)) is None:
        ship(spark)


_ours: Any = None  # the gateway to the Java process that was started here


# Starting.


def _connected(url: str, settings: SparkSettings) -> SparkSession:
    check_answers(url)
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise InputError(
            "master",
            f"{url} needs more than is installed ({error.name or str(error).split()[-1]}); "
            "allowed: pip install 'roamcast[connect]'",
        ) from error
    try:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        for key, value in settings.conf.items():
            spark.conf.set(key, value)
        if settings.archives:
            spark.addArtifacts(settings.archives, archive=True)
            spark.conf.set("spark.sql.execution.pyspark.python", settings.python)
    except (PySparkException, OSError) as error:
        raise InputError("Spark", f"did not start on {url}: {cause_in_a_line(error)}") from error
    spark._roamcast_master = url  # type: ignore[attr-defined]
    return spark


def _started(master: str, settings: SparkSettings) -> SparkSession:
    global _ours
    java_home = str(find_java())
    if master.startswith("spark://"):
        check_answers(master)
    _name_interpreters(master, settings)
    os.environ["JAVA_HOME"] = java_home
    if on_loopback(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    log = tempfile.TemporaryFile()  # noqa: SIM115 - what Java and its workers write, should the start fail
    try:
        if SparkContext._gateway is None:
            configuration = _configuration(master, settings, load_defaults=False)
            # Started here, because SparkContext would let Java write to our own streams.
            _ours = launch_gateway(  # type: ignore[no-untyped-call]
                configuration, popen_kwargs={"stdout": log, "stderr": log}
            )
            SparkContext._ensure_initialized(gateway=_ours)
        # Made only now: reading Spark's own defaults needs the Java process.
        context = SparkContext(conf=_configuration(master, settings))
        context.setLogLevel("ERROR")
        if context.uiWebUrl:
            sys.stderr.write(f"roamcast: Spark's pages are at {context.uiWebUrl}\n")
        return SparkSession.builder.getOrCreate()
    except Exception as error:
        raise InputError("Spark", f"did not start on {master}: {_reason(error, log)}") from error
    finally:
        log.close()  # Java has its own handle; only the start is explained from here


def _name_interpreters(master: str, settings: SparkSettings) -> None:
    """Spark reads these from the environment only. Without the first, workers take the `python3` of PATH."""
    global _named
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    given = os.environ.get("PYSPARK_PYTHON", "")
    if given == _named:  # by an earlier session
        given = ""
    if settings.archives:
        if local_cores(master) is not None:
            raise InputError(
                "--archives", f"is for workers of a cluster; on {master} they run {sys.executable}"
            )
        if os.path.isabs(given):  # a relative path is the user's own name for an interpreter in the archive
            given = ""
    if not given:
        os.environ["PYSPARK_PYTHON"] = _named = settings.python if settings.archives else sys.executable


_named = ""  # what `PYSPARK_PYTHON` was set to here


def _configuration(master: str, settings: SparkSettings, load_defaults: bool = True) -> SparkConf:
    values = {
        "spark.app.name": "roamcast",
        "spark.master": master,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Beyond this many folders (by default 32) listing them is a job of its own.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.task.maxFailures": str(TASK_FAILURES_MAX),
    }
    if on_loopback(master):
        values |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if cores := local_cores(master):
        # 200 tasks for a few thousand rows cost seconds. On a cluster Spark's adaptive execution joins small
        # partitions, down to as many as the cluster runs at a time when the query gets there.
        values["spark.sql.shuffle.partitions"] = str(cores)
        values["spark.driver.extraJavaOptions"] = QUICK_JAVA
        # Each join, sort and aggregation of a query takes at least one page, of up to 64 MB depending on the
        # memory. The metrics are one query with many of them; if memory runs out, Spark ends Java.
        values["spark.buffer.pageSize"] = "1m"
    if settings.archives:
        values["spark.archives"] = settings.archives
    if not load_defaults:  # what Java starts with becomes a default for every later session
        values = {key: value for key, value in values.items() if key.startswith(LAUNCH)}
    configuration = SparkConf(loadDefaults=load_defaults)
    return configuration.setAll(list({**values, **settings.conf}.items()))


def _reason(error: Exception, log: IO[bytes]) -> str:
    """One line: the Java exception's own message if there is one, else what Java complained of first."""
    log.seek(0)
    lines = [] if hasattr(error, "java_exception") else log.read().decode(errors="replace").splitlines()
    complaints = (line.strip() for line in lines if _COMPLAINT.search(line) and not _GREETING.search(line))
    return next(complaints, "") or cause_in_a_line(error)


# Java's end, and errors.


def _java_is_gone(within: float = 0.0) -> bool:
    """Whether the Java process that this one started has ended, or ends `within` so many seconds."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def _java_ended_with(error: BaseException) -> bool:
    """Whether the error is that of a Java that is gone, or will be in a moment. An error that Java itself
    sent shows that Java was running then, and it still runs unless the error says that it is ending."""
    was_sent = isinstance(error, CapturedException | Py4JJavaError)
    lives = was_sent and not _LAST_WORDS.search(f"{error} {getattr(error, '_stackTrace', '')}")
    return _java_is_gone(0.0 if lives else JAVA_ENDS_SECONDS)


def _forget_java() -> None:
    """Clear what PySpark keeps per process; otherwise it would go on using the dead Java process."""
    gateway: Any = SparkContext._gateway
    gateway.proc.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@contextmanager
def spark_errors_in_a_line(advice: str) -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        reason = "Java ended (killed?)" if _java_ended_with(error) else cause_in_a_line(error)
        raise RoamcastError(f"Spark gave up: {reason}{advice and '; '}{advice}") from error


# This package for the workers of a session, which may have another one or none.

_SHIPPED = "_roamcast_shipped"  # on a session that has the package already


def ship(spark: SparkSession) -> None:
    """Send the package to the workers of a session, whoever made it; once."""
    if not getattr(spark, _SHIPPED, False):
        spark.addArtifacts(str(package_zip()), pyfile=True)
        setattr(spark, _SHIPPED, True)


# Work as tasks: what RDDs are for elsewhere, by DataFrames alone, so that every kind of session can do it,
# Spark Connect included. Values and results travel pickled.


def mapped(spark: SparkSession, work: Callable[[Given], Made], values: Sequence[Given]) -> list[Made]:
    """`work` of each value, in their order. An error in a worker ends the job."""
    if not values:
        return []
    pickle: Callable[[object], bytes] = cloudpickle.dumps  # of functions defined in a notebook too
    pickled = [pickle(value) for value in values]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark ends its workers without a word. What they leave in its own folder goes with that.
        tempfile.tempdir = SparkFiles.getRootDirectory()
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            made = [pickle(work(cloudpickle.loads(pickled[number]))) for number in numbers]
            yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(made, pa.binary())], ["id", "made"])

    found = spark.range(0, len(values), 1, len(values)).mapInArrow(run, "id long, made binary").toArrow()
    ordered = found.sort_by("id")["made"]
    return [cloudpickle.loads(each.as_py()) for each in ordered]


@contextmanager
def repeated(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call this every so often, from a thread of its own: how far a job is."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


PARTS_MAX = 1_000  # tasks that read a table; chosen by us


def read_by_workers(
    spark: SparkSession, read: Callable[[int], pa.Table], count: int, schema: StructType
) -> DataFrame:
    """A table of so many parts, each read where it is needed: Spark needs no connector for their storage."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(number).to_batches()

    return spark.range(0, count, 1, min(count, PARTS_MAX)).mapInArrow(run, schema)
