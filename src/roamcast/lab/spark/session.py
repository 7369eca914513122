"""The one place that makes a Spark session: embedded by default, on a cluster when given its master.

One session per process: the first takes seconds, asking again costs nothing. It is quiet: whatever the
Java process and the Python workers write goes to an unnamed file, and the end of that file becomes part
of the error when a session cannot start. Workers run this same interpreter; on a cluster they get this
package as a zip, and the other dependencies (numpy, pyarrow, …) must be there.

Java can die during a job: its heap is full, or the system kills it because memory is short. `with_session`
then starts another one and repeats the work.
"""

import atexit
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import roamcast
from roamcast.errors import InputError, RoamcastError
from roamcast.lab.spark.java import find_java

TASK_FAILURES_MAX = 4  # Spark's default on clusters: a task whose worker died is repeated, locally too
CONNECT_SECONDS_MAX = 10.0  # chosen by us, as is the next; Spark's own time-out is about a minute
JAVA_ENDS_SECONDS = 2.0  # Java's connections break a moment before its process has ended
LOOPBACK = "127.0.0.1"
DRIVER_MEMORY = "2g"  # at most; Spark's own SPARK_DRIVER_MEMORY overrides it
Made = TypeVar("Made")
# An embedded session lives for minutes, and its time goes into starting up, planning and waiting for Python.
# Measured on 2 cores, for start and the metrics of a sweep: 29 s of processor time instead of 50 s.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_LOCAL = re.compile(r"local(?:\[(?P<cores>\d+|\*)(?:,(?P<failures>\d+))?\])?")
_ADDRESS = r"[^\s:/,]+:\d{1,5}"
_STANDALONE = re.compile(rf"spark://{_ADDRESS}(,{_ADDRESS})*")
_COMPLAINT = re.compile(r"error|exception|invalid|could not|cannot", re.IGNORECASE)
_OTHER = re.compile(r"yarn|k8s://\S+|local-cluster\[\d+,\d+,\d+\]")


def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, started if there is none.

    `master` None: the running session, else an embedded one with all cores of this machine. If the running
    session has another master, it is stopped and a new one started. `settings` are for a new session only.
    """
    if _java_is_gone():
        _forget_java()
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is not None and running.sparkContext._jsc is not None:
        if master is None or running.sparkContext.master == resolved_master(master):
            return running
        running.stop()
    return _started(resolved_master(master), settings or {})


def with_session(master: str | None, work: Callable[[SparkSession], Made], advice: str = "") -> Made:
    """The result of `work`. It must be repeatable: if Java dies, it is called once more with a new session.
    An error of Spark becomes one line, followed by `advice`."""
    with spark_errors_in_a_line(advice):
        try:
            return work(session(master))
        except (Py4JError, PySparkException, ConnectionError):
            if not _java_is_gone(JAVA_ENDS_SECONDS):
                raise
        return work(session(master))


def stop() -> None:
    """End the session of this process, if there is one; its Java process stays for the next."""
    if SparkSession._instantiatedSession is not None and not _java_is_gone():
        SparkSession._instantiatedSession.stop()


def resolved_master(master: str | None) -> str:
    """The master URL as Spark gets it, or an `InputError`. Locally, dead workers are retried."""
    if master is None:
        return f"local[{usable_cores()},{TASK_FAILURES_MAX}]"
    if local := _LOCAL.fullmatch(master):
        cores = local["cores"] or "1"
        if cores == "0" or local["failures"] == "0":
            raise InputError("master", f"is {master!r}; allowed: local[N] with N of at least 1")
        return f"local[{cores},{local['failures'] or TASK_FAILURES_MAX}]"
    if _STANDALONE.fullmatch(master) or _OTHER.fullmatch(master):
        return master
    raise InputError(
        "master",
        f"is {master!r}; allowed: local, local[N], local[*], spark://host:port, yarn, k8s://host:port",
    )


def usable_cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _started(master: str, settings: Mapping[str, str]) -> SparkSession:
    java_home = str(find_java())
    if master.startswith("spark://"):
        _check_answers(master)
    # Spark reads these from the environment only. Without the first, workers take the `python3` of PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = java_home
    if _on_loopback(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    log = _Log()
    try:
        if SparkContext._gateway is None:
            configuration = _configuration(master, settings, load_defaults=False)
            # Started here, because SparkContext would let Java write to our own streams.
            gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]
                configuration, popen_kwargs={"stdout": log.file, "stderr": log.file}
            )
        else:
            gateway = SparkContext._gateway
        # Made only now: reading Spark's own defaults needs the Java process.
        SparkContext._ensure_initialized(gateway=gateway)
        context = SparkContext(conf=_configuration(master, settings), gateway=gateway)
        context.setLogLevel("ERROR")
        if not _is_local(master):
            context.addPyFile(str(_package_zip()))
        return SparkSession.builder.getOrCreate()
    except Exception as error:
        raise InputError("Spark", f"did not start on {master}: {_reason(error, log)}") from error
    finally:
        log.file.close()  # Java has its own handle; only the start is explained from here


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
        java = getattr(error, "java_exception", None)
        lines = (str(java.toString()) if java is not None else str(error)).splitlines()
        reason = (
            "Java ended (killed?)"
            if _java_is_gone(JAVA_ENDS_SECONDS)
            else lines[0]
            if lines
            else type(error).__name__
        )
        raise RoamcastError(f"Spark gave up: {reason}{advice and '; '}{advice}") from error


def _is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None


def _on_loopback(master: str) -> bool:
    """Nothing outside this machine has to reach the driver."""
    return _is_local(master) or re.match(r"spark://(127\.|localhost:)", master) is not None


def _configuration(master: str, settings: Mapping[str, str], load_defaults: bool = True) -> SparkConf:
    cores = usable_cores()
    values = {
        "spark.app.name": "roamcast",
        "spark.master": master,
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": str(cores),  # 200 tasks for a few thousand rows cost seconds
        # Beyond this many folders (by default 32) listing them is a job of its own.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.task.maxFailures": str(TASK_FAILURES_MAX),
    }
    if _on_loopback(master):
        values |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if _is_local(master):
        values["spark.driver.extraJavaOptions"] = QUICK_JAVA
        # Each join, sort and aggregation of a query takes at least one page, of up to 64 MB depending on the
        # memory. The metrics are one query with many of them; if memory runs out, Spark ends Java.
        values["spark.buffer.pageSize"] = "1m"
    configuration = SparkConf(loadDefaults=load_defaults)
    return configuration.setAll(list({**values, **settings}.items()))


def _check_answers(master: str) -> None:
    """Check that the master answers; Spark itself would try for a minute and give a vague error."""
    problem = ""
    for address in master.removeprefix("spark://").split(","):
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS_MAX).close()
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise InputError(
        "master", f"{master} does not answer ({problem}); allowed: the address of a running Spark master"
    )


def _package_zip() -> Path:
    """This package as a zip for workers. Sorted and without dates, so that its bytes are always the same."""
    source = Path(roamcast.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "roamcast.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                name = Path(source.name) / path.relative_to(source)
                archive.writestr(zipfile.ZipInfo(name.as_posix()), path.read_bytes())
    return target


class _Log:
    """What Java and its workers write, kept for the case that the start fails."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    def first_complaint(self) -> str:
        """The first line that looks like an error, if there is any."""
        self.file.seek(0)
        lines = self.file.read().decode(errors="replace").splitlines()
        complaints = [line.strip() for line in lines if _COMPLAINT.search(line)]
        return complaints[0] if complaints else ""


def _reason(error: Exception, log: _Log) -> str:
    """One line: the Java exception's own message if there is one, else what Java complained of first."""
    java_exception = getattr(error, "java_exception", None)
    if java_exception is not None:
        return str(java_exception.toString()).splitlines()[0]
    lines = str(error).splitlines()
    return log.first_complaint() or (lines[0] if lines else type(error).__name__)
