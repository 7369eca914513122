"""The fewest broadcasts that carry an event from where it is to all nodes that are to have it.

One broadcast serves every neighbour of its sender: a Steiner tree whose inner nodes cost 1 each, NP-hard in
general and small here. Time is cut into intervals in which links rest. A *state* is a node in an interval;
it costs 1 to send in a state, and nothing to carry the event to the node's next state. The graph of one
instant is the same with one interval.

- From below, dual ascent (Wong 1984): cuts between the start and a goal, no two of which share a sender. Each
  needs a sender of its own, so there are at least as many senders as cuts, and at least as many as hops to
  the farthest goal.
- From above, again and again the shortest way to a goal that is not served yet (Takahashi and Matsuyama
  1980), by the sender that serves most goals; then whoever is not needed is taken out.
- Where the two differ, exactly: an integer program over the senders, with a row for each cut. It begins with
  the cuts of the ascent, and gets one more whenever its answer does not reach a goal.

Sets of states are integers, bit s for state s, as sets of nodes are elsewhere.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from roamcast.world.reach import members

SENDERS_MAX = 60  # for which the integer program is solved; chosen by us: some ten milliseconds
ROUNDS_MAX = 10  # of the integer program; chosen by us, as is the next: an event needs 1 to 5
BRANCHES_MAX = 500  # of one round. A bound on time would make the same run measure differently

StateSet = int


class Fewest(NamedTuple):
    """Bounds on the number of broadcasts; equal where it is known."""

    at_least: int
    at_most: int
    senders: list[int]  # the states that send in the best solution known, which are `at_most`


def fewest(
    hearers: Sequence[StateSet], start: StateSet, goals: StateSet, nodes: int, exact: bool = True
) -> Fewest:
    """State s is node s % nodes in interval s // nodes. `hearers`: whom a broadcast in a state serves.
    `start`: the states that have the event; `goals`: those to be served, all of which can be."""
    return _Broadcasts(hearers, start, goals, nodes).solved(exact)


class _Broadcasts:
    def __init__(self, hearers: Sequence[StateSet], start: StateSet, goals: StateSet, nodes: int) -> None:
        self._nodes, self._states = nodes, len(hearers)
        self._all = (1 << len(hearers)) - 1
        self._start = self._onward(start)
        self._goals = goals & ~self._start
        self._hearers = hearers
        self._served = [self._onward(heard) for heard in hearers]
        self._heard = [0] * len(hearers)  # the senders whom a state hears
        for state, heard in enumerate(hearers):
            for hearer in members(heard):
                self._heard[hearer] |= 1 << state

    def solved(self, exact: bool) -> Fewest:
        if not self._goals:
            return Fewest(0, 0, [])
        order = self._by_distance()
        cuts = max((self._cuts(order), self._cuts(order[::-1])), key=len)
        at_least = max(len(cuts), order[0][0])
        senders = self._pruned(self._grown())
        if at_least < senders.bit_count() and exact:
            at_least, senders = self._exactly(cuts, at_least, senders)
        return Fewest(at_least, senders.bit_count(), members(senders))

    # Carrying: a state's later states are held with it.

    def _onward(self, states: StateSet) -> StateSet:
        step = self._nodes
        while step < self._states:
            states |= states << step
            step *= 2
        return states & self._all

    def _before(self, states: StateSet) -> StateSet:
        step = self._nodes
        while step < self._states:
            states |= states >> step
            step *= 2
        return states

    def _reached(self, senders: StateSet) -> tuple[StateSet, StateSet]:
        """What is held in the end if these send, and those of them that could."""
        held, done = self._start, 0
        while to_send := held & senders & ~done:
            state = to_send.bit_length() - 1
            done |= 1 << state
            held |= self._served[state]
        return held, done

    # From below.

    def _by_distance(self) -> list[tuple[int, int]]:
        """The goals with the hops of their shortest ways, the farthest first."""
        found: list[tuple[int, int]] = []
        held, frontier, hops = self._start, self._start, 0
        while frontier:
            found += [(hops, goal) for goal in members(frontier & self._goals)]
            reached = 0
            for state in members(frontier):
                reached |= self._hearers[state]
            frontier = self._onward(reached) & ~held
            held |= frontier
            hops += 1
        assert len(found) == self._goals.bit_count(), "no way leads to some goal"
        return found[::-1]

    def _cuts(self, order: Iterable[tuple[int, int]]) -> list[StateSet]:
        """Sets of senders that have none in common; of each some sender must send."""
        cuts: list[StateSet] = []
        taken = 0  # the senders in cuts: they cost nothing any more
        for _, goal in order:
            inside, crossing, front = 0, 0, self._before(1 << goal)
            while front and not front & self._start:
                inside |= front
                crossing |= self._senders_to(front)
                front = self._before(crossing & taken) & ~inside
                if not front:
                    crossing &= ~inside
                    cuts.append(crossing)
                    taken |= crossing
                    front = self._before(crossing)
        return cuts

    def _senders_to(self, states: StateSet) -> StateSet:
        senders = 0
        for state in members(states):
            senders |= self._heard[state]
        return senders

    # From above.

    def _grown(self) -> StateSet:
        senders, held = 0, self._start
        while left := self._goals & ~held:
            parents: dict[int, int] = {}
            seen, layer = held, members(held)
            while True:
                best = max(layer, key=lambda state: (self._served[state] & left).bit_count())
                if self._served[best] & left:
                    break
                before = seen
                for state in layer:
                    new = self._served[state] & ~seen
                    seen |= new
                    parents.update(dict.fromkeys(members(new), state))
                layer = members(seen & ~before)
            while True:
                senders |= 1 << best
                held |= self._served[best]
                if best not in parents:
                    break
                best = parents[best]
        return senders

    def _pruned(self, senders: StateSet) -> StateSet:
        """The solution without senders that are not needed; those who serve few goals are tried first."""
        for state in sorted(members(senders), key=lambda s: (self._served[s] & self._goals).bit_count()):
            held, done = self._reached(senders & ~(1 << state))
            if not self._goals & ~held:
                senders = done
        return senders

    # Exactly.

    def _exactly(self, cuts: list[StateSet], at_least: int, senders: StateSet) -> tuple[int, StateSet]:
        from scipy.optimize import Bounds, LinearConstraint, milp  # most events need none

        kept = self._undominated()
        columns = members(kept)
        if len(columns) > SENDERS_MAX:
            return at_least, senders
        rows = {cut & kept for cut in cuts} | {
            self._around(1 << goal) & kept for goal in members(self._goals)
        }
        for _ in range(ROUNDS_MAX):
            # A row that holds another one's senders says nothing beside it.
            least = [row for row in rows if not any(other != row and not other & ~row for other in rows)]
            of_rows = [[row >> state & 1 for state in columns] for row in sorted(least)]
            # Fewer than are known; that there are none shows that those are the fewest.
            matrix = np.array([*of_rows, [-1] * len(columns)], dtype=float)
            lowest = [1.0] * len(of_rows) + [1.0 - senders.bit_count()]
            answer = milp(
                np.ones(len(columns)),
                constraints=LinearConstraint(matrix, lowest),
                integrality=np.ones(len(columns), dtype=int),
                bounds=Bounds(0, 1),
                options={"node_limit": BRANCHES_MAX},
            )
            if answer.status == 2:  # infeasible
                return senders.bit_count(), senders
            if answer.mip_dual_bound is not None and math.isfinite(answer.mip_dual_bound):
                at_least = max(at_least, math.ceil(answer.mip_dual_bound - 1e-6))
            if answer.status != 0:
                break
            chosen = sum(1 << state for state, value in zip(columns, answer.x, strict=True) if value > 0.5)
            held, done = self._reached(chosen)
            if not self._goals & ~held:
                return done.bit_count(), done
            rows |= {self._around(1 << goal, chosen) & kept for goal in members(self._goals & ~held)}
            rows.add(sum(1 << s for s in members(held & kept & ~done) if self._served[s] & ~held))
        return at_least, senders

    def _around(self, inside: StateSet, chosen: StateSet = 0) -> StateSet:
        """The cut around a state and all from which the chosen senders lead to it."""
        front, inside, crossing = self._before(inside), 0, 0
        while front:
            inside |= front
            crossing |= self._senders_to(front)
            front = self._before(crossing & chosen) & ~inside
        return crossing & ~inside

    def _undominated(self) -> StateSet:
        """Senders without those whose part another one can always take: it serves what they serve, and has
        the event whenever they have it."""
        needed = [self._senders_to(self._before(1 << state)) for state in range(self._states)]
        kept = self._all
        for state in range(self._states):
            served = self._served[state] & ~self._start
            if not served or not (needed[state] or self._start >> state & 1):
                kept &= ~(1 << state)
                continue
            first = served.bit_length() - 1
            for other in members((needed[first] | self._before(1 << first)) & kept & ~(1 << state)):
                own = self._before(1 << other)
                holds = self._start >> other & 1 or not (
                    self._start >> state & 1 or needed[state] & ~(needed[other] | own)
                )
                if holds and not served & ~(self._served[other] | self._onward(1 << other)):
                    kept &= ~(1 << state)
                    break
        return kept
