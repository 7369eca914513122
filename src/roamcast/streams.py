"""Random numbers, in named streams.

Every part of a run that draws random numbers has its own stream: one for who publishes, one for each
publisher's times, one for each layer of each node. A new draw in one stream changes no draw in another, so
that two runs that differ in one thing differ in that thing only.
"""

from random import Random


def stream(seed: int, *names: str | int) -> Random:
    """The stream of one part, e.g. `stream(seed, "node", 7, "strategy")`.

    `Random` seeds itself from the SHA-512 of a text, never from `hash()`: the stream is the same in
    every process and on every machine.
    """
    parts = [str(part) for part in (seed, *names)]
    assert all("/" not in part for part in parts), "a slash in a name could make two streams one"
    return Random("/".join(parts))
