"""What the user asked of Spark beside its master. There is one Spark per process, and so one of these.

No Spark is imported here: the commands read their options into it before they know whether they need one.
"""

import re
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
