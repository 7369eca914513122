"""Why a job of Spark failed, in one line: the innermost cause, and the file that it is about.

Spark wraps an error once per layer that it passes ("Job aborted due to stage failure", "Exception thrown in
awaitResult"); what happened, and to which file, is at the bottom of the trace. Classic sessions and Spark
Connect both keep that trace as text, so the text is what is read here.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

LENGTH_MAX = 600  # characters of a line; chosen by us

_TRACEBACK = "Traceback (most recent call last):"
_JAVA_FRAME = re.compile(r"^\s+at |^\t\.\.\. \d+ more|^Driver stacktrace:", re.MULTILINE)
_JAVA_ERROR = re.compile(
    r"(?:[a-z_]\w*\.)+(?P<name>[A-Z][\w$]*(?:Exception|Error))\b(?!.*\.[A-Z]\w*(?:Exception|Error)\b)"
)
_PYTHON_ERROR = re.compile(r"(?P<class>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?")
# As Spark and Java write them. The end of a path is a blank, a quote, or the mark behind it.
_FILE = re.compile(r"(?<![\w/])(?:(?:s3a?|hdfs|gs|abfss?):/)?/[^\s'\";,:)\]}]*[^\s'\";,:)\]}.]")
_STAGE_FAILURE = re.compile(r"Job aborted due to stage failure: (?:Task .*?most recent failure: )?")


class Cause(NamedTuple):
    """One error of a chain."""

    name: str  # of its class, without the package; empty for an error of this project
    message: str

    def to_line(self) -> str:
        return ": ".join(part for part in self if part)


def cause_in_a_line(error: BaseException) -> str:
    """The innermost cause of a failure, with the file that it or an outer error names."""
    return cause_of_trace(_trace(error) or type(error).__name__)


def cause_of_trace(trace: str) -> str:
    """The same for the text of a trace, Java's or Python's."""
    trace = re.sub(r"file:/+", "/", trace)
    outermost = Cause("", _STAGE_FAILURE.sub("", trace.strip().splitlines()[0]))
    causes = list(_python_causes(trace)) or [cause for cause in _java_causes(trace) if cause.message]
    chain = [outermost, *causes]  # Spark Connect gives some causes by their class alone
    line = chain[-1].to_line()
    if not _FILE.search(line):
        named = (_FILE.search(cause.message) for cause in reversed(chain))
        if file := next((found.group() for found in named if found), None):
            line = f"{file}: {line}"
    return line[:LENGTH_MAX]


def _trace(error: BaseException) -> str:
    """All that an error of PySpark knows, stack traces of Java included."""
    for attribute in ("_stackTrace", "_stacktrace"):  # of a classic session; of Spark Connect
        if text := getattr(error, attribute, None):
            return f"{error}\n{text}"
    return str(error)


def _python_causes(trace: str) -> Iterator[Cause]:
    """What each traceback of a Python worker ends with. An error of this project is its message alone."""
    for part in trace.split(_TRACEBACK)[1:]:
        frames = _JAVA_FRAME.split(part)[0].rstrip().splitlines()
        last = max((at for at, line in enumerate(frames) if line.startswith("  ")), default=-1)
        for line in frames[last + 1 :]:
            if found := _PYTHON_ERROR.fullmatch(line.strip()):
                package, _, name = found["class"].rpartition(".")
                yield Cause("" if package.startswith("roamcast.") else name, found["message"] or "")
                break


def _java_causes(trace: str) -> Iterator[Cause]:
    for line in trace.splitlines():
        found = None if _JAVA_FRAME.match(line) else _JAVA_ERROR.search(line)
        if found:  # the last one of the line: a failed task's error is behind that of its stage
            yield Cause(found["name"], line[found.end() :].removeprefix(":").strip())
