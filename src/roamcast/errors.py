"""Three kinds of fault, kept apart.

The air's fault (`WireError`): the frame is dropped, counted, and the node goes on. The user's fault
(`InputError` and its children): one line that says what and where; a command exits with 2. Ours: an
`assert`, which stops at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class RoamcastError(Exception):
    """The root of every error that Roamcast raises on purpose."""


class WireError(RoamcastError):
    """Bytes from the air that are no message. The sender's fault; it never stops a node."""

    def __init__(self, field: str, octet: int, problem: str) -> None:
        # All three go to `args`, so that the error can be pickled to a worker and back.
        super().__init__(field, octet, problem)

    @property
    def problem(self) -> str:
        return str(self.args[2])

    def __str__(self) -> str:
        return "{} at octet {} {}".format(*self.args)


class InputError(RoamcastError):
    """Something the user gave is wrong. `where` is a file, key or text; `problem` says what is allowed."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)

    @property
    def where(self) -> str:
        return str(self.args[0])

    @property
    def problem(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class ScenarioError(InputError):
    """A scenario, experiment or configuration key with an impossible value. `where` is the dotted key."""


@contextmanager
def errors_in(source: str) -> Iterator[None]:
    """A `ScenarioError` says where its key stands: in a file, or a part of one. Empty: it is said already."""
    try:
        yield
    except ScenarioError as error:
        where = f"{source}: {error.where}" if source else error.where
        raise ScenarioError(where, error.problem) from None


class FileError(InputError):
    """A file that cannot be read as what it claims to be. `where` is `path` or `path:line`."""


class FilterError(InputError):
    """A filter text outside the language. `where` is the text, `problem` names the part and the rule."""


class EventError(InputError, ValueError):
    """An event that cannot be published as it is. `where` names the part, `problem` what is allowed.

    A `ValueError` too: that is what decoders expect of a value that refuses to be made."""
