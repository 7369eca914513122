"""What a node gave up or refused, by reason: the first of each kind is logged, then a count per minute.

A reason that is part of normal operation (`NORMAL_…`) is counted and not logged.
"""

import logging

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
    "store_full": "a full table or a full disk had no room for it",
    "superseded": "a newer retained event of its topic took its place",
    "stale": "it came by a route that is not used any more",
    "modulator": "a consumer's function failed",
    "false_positive": "a summary matched by mistake; nobody here wanted it",
}
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
        self._minute = now // MINUTE
        self._totals: dict[str, int] = {}
        self._slots: dict[str, list[int]] = {}  # by reason: the number of its latest slot, then the counts
        self._this_minute: dict[str, int] = {}  # beyond the first of its kind

    def count(self, reason: str, now: Micros, detail: str = "") -> None:
        total = self._totals[reason] = self._totals.get(reason, 0) + 1
        slots = self._slots.get(reason)
        if slots is None:
            slots = self._slots[reason] = [0] * SLOTS + [now // SLOT]
        self._turn(slots, now)
        slots[0] += 1
        if reason in self._normal:
            return
        if total == 1:
            about = f" ({detail})" if detail else ""
            self._logger.warning("%s%s: %s", self._what, about, self.in_words(reason))
        else:
            self._this_minute[reason] = self._this_minute.get(reason, 0) + 1

    def look(self, now: Micros) -> None:
        """Log the counts of a minute once it is over. Call it every second or so."""
        if now // MINUTE == self._minute:
            return
        self._minute = now // MINUTE
        counts, self._this_minute = self._this_minute, {}
        for reason, count in sorted(counts.items()):
            self._logger.warning("%s in a minute: %d: %s", self._what, count, self.in_words(reason))

    def last_minute(self, reason: str, now: Micros) -> int:
        slots = self._slots.get(reason)
        if slots is None:
            return 0
        self._turn(slots, now)
        return sum(slots[:SLOTS])

    def totals(self) -> dict[str, int]:
        return dict(self._totals)

    def in_words(self, reason: str) -> str:
        return self._words.get(reason, reason)

    @staticmethod
    def _turn(slots: list[int], now: Micros) -> None:
        """Make room for the slot of `now`. The latest count comes first; the last entry is its number."""
        past = now // SLOT - slots[SLOTS]
        if past > 0:
            kept = slots[: max(0, SLOTS - past)]
            slots[:SLOTS] = [0] * (SLOTS - len(kept)) + kept
            slots[SLOTS] += past
