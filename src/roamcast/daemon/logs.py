"""Log lines: text for people, or one JSON object per line for machines. They go to standard error."""

import json
import logging
import sys
import time

from roamcast.daemon.config import LogFormat, LogSettings


def set_up(settings: LogSettings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else _text())
    root = logging.getLogger("roamcast")
    root.handlers = [handler]
    root.setLevel(settings.level.name)
    root.propagate = False


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix("roamcast."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _text() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter


def _time(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment * 1000) % 1000:03d}Z"
