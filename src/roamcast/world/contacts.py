"""The contact plan: per pair of nodes, the intervals in which a link exists.

The simulator and the emulator play it. `world/crossings.py` computes it from motion; `world/formats/` reads
and writes it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roamcast.units import Micros

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ContactPlan:
    """Rows `(sender, receiver, start, end)`, sorted by start, sender, receiver, end.

    With `directed` false each row means both directions and has sender < receiver. Intervals of one
    pair are closed-open `[start, end)`, disjoint and not adjacent. `end` may be the plan's horizon.
    """

    nodes: int
    directed: bool
    sender: Numbers
    receiver: Numbers
    start: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.start)

    @staticmethod
    def of(
        nodes: int,
        rows: list[tuple[int, int, Micros, Micros]],
        *,
        directed: bool = False,
    ) -> "ContactPlan":
        """A plan from rows in any order; overlapping and adjacent intervals of a pair are joined."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return joined(nodes, table[:, 0], table[:, 1], table[:, 2], table[:, 3], directed=directed)


def joined(
    nodes: int,
    sender: Numbers,
    receiver: Numbers,
    start: Numbers,
    end: Numbers,
    *,
    directed: bool,
) -> ContactPlan:
    """The normal form of a plan: pairs ordered, empty intervals left out, touching ones joined."""
    if not directed:
        sender, receiver = np.minimum(sender, receiver), np.maximum(sender, receiver)
    keep = (start < end) & (sender != receiver)
    sender, receiver, start, end = sender[keep], receiver[keep], start[keep], end[keep]
    order = np.lexsort((end, start, receiver, sender))
    sender, receiver, start, end = sender[order], receiver[order], start[order], end[order]
    if len(start):
        pair = sender * nodes + receiver
        changes = np.empty(len(pair), dtype=np.bool_)
        changes[0] = True
        changes[1:] = pair[1:] != pair[:-1]
        # The running maximum of the ends, restarted at each pair. It runs over the ranks of the ends with
        # an offset per pair: ranks times pairs stay small where microseconds times pairs would overflow.
        offset = (np.cumsum(changes) - 1) * len(end)
        by_end = np.argsort(end, kind="stable")
        rank = np.empty_like(by_end)
        rank[by_end] = np.arange(len(end))
        reach = end[by_end][np.maximum.accumulate(rank + offset) - offset]
        opens = changes.copy()
        opens[1:] |= start[1:] > reach[:-1]
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(start)) - 1
        sender, receiver, start, end = sender[first], receiver[first], start[first], reach[last]
    order = np.lexsort((end, receiver, sender, start))
    return ContactPlan(nodes, directed, sender[order], receiver[order], start[order], end[order])
