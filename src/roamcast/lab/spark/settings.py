"""What the user asked of Spark: which master, with what beside. There is one Spark per process, and so one
of these.

No Spark is imported here: the commands read their options into it before they know whether they need one.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import InputError

ENVIRONMENT = "environment"  # under which name an archive is unpacked if it gives none


class SparkSettings(NamedTuple):
    """For the session that this process starts; one that runs already keeps its own."""

    conf: Mapping[str, str] = {}
    archives: str = ""  # FILE#NAME: a packed Python environment, unpacked for each worker under NAME

    @property
    def python(self) -> str:
        """The interpreter in the archive, as workers see it."""
        return f"./{self.archives.rpartition('#')[2]}/bin/python"


asked = SparkSettings()


def ask(conf: Iterable[str], archives: str | None, ui: bool, event_log: str | None) -> None:
    """Keep what the options of a command say. `conf`: texts `KEY=VALUE`; `event_log`: a folder."""
    global asked
    values = {}
    for text in conf:
        key, given, value = text.partition("=")
        if not given or not re.fullmatch(r"[A-Za-z][\w.-]*", key):
            raise InputError("--conf", f"is {text!r}; allowed: KEY=VALUE, e.g. spark.executor.memory=4g")
        values[key] = value
    if ui:
        values["spark.ui.enabled"] = "true"
    if event_log is not None:
        if "://" not in event_log:
            Path(event_log).mkdir(parents=True, exist_ok=True)
            event_log = Path(event_log).absolute().as_uri()
        values |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": event_log}
    if archives and "#" not in archives:
        archives = f"{archives}#{ENVIRONMENT}"
    asked = SparkSettings(values, archives or "")


TASK_FAILURES_MAX = 4  # Spark's default on clusters: a task whose worker died is repeated, locally too
CONNECT_SECONDS_MAX = 10.0  # chosen by us; Spark's own time-out is about a minute
CONNECT_PORT = 15002  # Spark Connect's own default

_LOCAL = re.compile(r"local(?:\[(?P<cores>\d+|\*)(?:,(?P<failures>\d+))?\])?")
_ADDRESS = r"[^\s:/,;]+:\d{1,5}"
_STANDALONE = re.compile(rf"spark://{_ADDRESS}(,{_ADDRESS})*")
_CONNECT = re.compile(r"sc://(?P<host>[^\s:/,;]+)(:(?P<port>\d{1,5}))?(/(;\S*)?)?")
_OTHER = re.compile(r"yarn|k8s://\S+|local-cluster\[\d+,\d+,\d+\]")


def resolved_master(master: str | None) -> str:
    """The master URL as Spark gets it, or an `InputError`. Locally, dead workers are retried."""
    if master is None:
        return os.environ.get("SPARK_REMOTE") or f"local[{usable_cores()},{TASK_FAILURES_MAX}]"
    if local := _LOCAL.fullmatch(master):
        cores = local["cores"] or "1"
        if cores == "0" or local["failures"] == "0":
            raise InputError("master", f"is {master!r}; allowed: local[N] with N of at least 1")
        return f"local[{cores},{local['failures'] or TASK_FAILURES_MAX}]"
    if any(known.fullmatch(master) for known in (_STANDALONE, _CONNECT, _OTHER)):
        return master
    raise InputError(
        "master",
        f"is {master!r}; allowed: local, local[N], local[*], spark://host:port, yarn, k8s://host:port, "
        "and sc://host:port for Spark Connect",
    )


def usable_cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def local_cores(master: str) -> int | None:
    """How many cores a master of this machine uses; None for a cluster."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return None
    return usable_cores() if local["cores"] == "*" else int(local["cores"] or 1)


def is_connect(master: str) -> bool:
    return _CONNECT.fullmatch(master) is not None


def on_loopback(master: str) -> bool:
    """Nothing outside this machine has to reach the driver."""
    return local_cores(master) is not None or re.match(r"spark://(127\.|localhost:)", master) is not None


def check_answers(master: str) -> None:
    """Check that the master answers; Spark itself would try for a minute and give a vague error."""
    problem = ""
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), CONNECT_SECONDS_MAX).close()
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        else:
            return
    kind = "Spark Connect server" if is_connect(master) else "Spark master"
    raise InputError(
        "master", f"{master} does not answer ({problem}); allowed: the address of a running {kind}"
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    if found := _CONNECT.fullmatch(master):
        return [(found["host"], int(found["port"] or CONNECT_PORT))]
    pairs = (address.rsplit(":", 1) for address in master.removeprefix("spark://").split(","))
    return [(host, int(port)) for host, port in pairs]
