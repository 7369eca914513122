"""What a node gave up or refused, by reason: the first of each kind is logged, then a count per minute.

A reason that is part of normal operation (`NORMAL_…`) is counted and not logged.
"""

import logging

from roamcast.broker.assembly import PROBLEMS
from roamcast.units import SECOND, Micros

SLOT: Micros = 10 * SECOND
SLOTS = 6  # a minute
MINUTE: Micros = SLOT * SLOTS

DROP_WORDS = {
    "queue_full": "the queue for a neighbour or for the radio was full: more is published than gets through",
    "retries": "a neighbour did not acknowledge it: it moved away, or the link is bad",
    "not_in_range": "it was for a node that is no neighbour any more",
    "no_route": "no route to its destination is known",
    "crashed": "it was queued when the node stopped",
    "expired": "its lifetime or its hop limit ended",
    "wire": "it could not be decoded: damaged, or of another version",
    "seal": "its seal was not accepted",
    "store_full": "the store of events was full, or the disk",
    "superseded": "a newer retained event of its topic took its place",
    "stale": "it came by a route that is not used any more",
    "modulator": "a consumer's function failed",
    "false_positive": "a summary matched by mistake; nobody here wanted it",
}
DROP_WORDS |= {f"chunk_{problem.reason}": problem.words for problem in PROBLEMS}
NORMAL_DROPS = frozenset({"not_in_range", "expired", "superseded", "stale", "false_positive", "crashed"})

REFUSAL_WORDS = {
    "too_short": "too short to be a frame of ours: another program uses this port",
    "too_long": "too long to be a frame of ours: another program uses this port",
    "unknown_version": "of another version of Roamcast, or of another program on this port",
    "unknown_key": "of another group: it has a group key that this node does not have",
    "forged": "damaged or forged: its tag does not fit",
    "own_frame": "our own, come back to us",
    "replayed": "came twice: a repeat of the network, or a recording",
    "stale_epoch": "from before its sender's restart",
    "unproven": "the first ones of a new peer, before it answered our challenge",
    "bad_announcement": "an announcement that cannot be read: another version, or damaged",
    "bad_signature": "an announcement with a false signature",
    "identity": "a node number that is known with another key",
    "revoked": "of a device that was revoked",
    "clash": "another device has our own node number",
    "records": "its content cannot be read: another version",
}
NORMAL_REFUSALS = frozenset({"own_frame", "unproven", "stale_epoch", "replayed"})


class ReasonTally:
    """Counts of one kind (`what`: "dropped", "refused")."""

    def __init__(
        self, logger: logging.Logger, what: str, words: dict[str, str], normal: frozenset[str], now: Micros
    ) -> None:
        self._logger = logger
        self._what = what
        self._words = words
        self._normal = normal
        # By reason: the counts of the last slots, the latest first, then the total and that of the last line.
        self._counts: dict[str, list[int]] = {}
        self._slot = now // SLOT
        self._slot_ends: Micros = (self._slot + 1) * SLOT
        self._minute = now // MINUTE

    def count(self, reason: str, now: Micros, detail: str = "") -> None:
        if now >= self._slot_ends:
            self.look(now)
        counts = self._counts.get(reason)
        if counts is None:
            self._counts[reason] = [1, *([0] * (SLOTS - 1)), 1, 1]
            if reason not in self._normal:
                about = f" ({detail})" if detail else ""
                self._logger.warning("%s%s: %s", self._what, about, self.in_words(reason))
            return
        counts[0] += 1
        counts[SLOTS] += 1

    def look(self, now: Micros) -> None:
        """Log the counts of a minute once it is over. Call it every second or so."""
        past = now // SLOT - self._slot
        if past <= 0:
            return
        self._slot += past
        self._slot_ends = (self._slot + 1) * SLOT
        for counts in self._counts.values():
            kept = counts[: max(0, SLOTS - past)]
            counts[:SLOTS] = [0] * (SLOTS - len(kept)) + kept
        if now // MINUTE != self._minute:
            self._minute = now // MINUTE
            self._log_minute()

    def last_minute(self, reason: str, now: Micros) -> int:
        self.look(now)
        return sum(self._counts.get(reason, ())[:SLOTS])

    def totals(self) -> dict[str, int]:
        return {reason: counts[SLOTS] for reason, counts in self._counts.items()}

    def in_words(self, reason: str) -> str:
        return self._words.get(reason, reason)

    def _log_minute(self) -> None:
        for reason, counts in sorted(self._counts.items()):
            more = counts[SLOTS] - counts[SLOTS + 1]
            counts[SLOTS + 1] = counts[SLOTS]
            if more and reason not in self._normal:
                self._logger.warning("%s in a minute: %d: %s", self._what, more, self.in_words(reason))
