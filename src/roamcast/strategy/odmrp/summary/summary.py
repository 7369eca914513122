"""Compact summaries of subscriptions (Pub/Sub ODMRP, section 3.3), and looking events up in them.

A broker's summary is an array of entries. Each stands for one AND of conditions, or for several that were
merged; each holds the five structures of the paper:

- EN, the Event Type Name: one Bloom filter;
- EL, the Element Association List: the elements that the entry has conditions on, and for each pair a
  Bloom filter of the values that belong together in one subscription;
- EC, AC and SC (SC_L, SC_R, SC_X): for each of these elements, Bloom filters of the values, ranges,
  beginnings, ends and texts that it may have (`conditions.py` says which goes where).

A subscription sets bits, an event looks its own values up (`digest.py`), and a Bloom filter always matches
what was put in. Hence no false negatives; docs/protocols/odmrp-summaries.md has the argument in full, and
sizes and false positives as measured. Read `bloom.py`, `cells.py`, `entry.py` for the parts.

As in the paper there is no hierarchical encoding: an event names each type above its own.

Many summaries, and which of them an event's digest matches: what a publisher's broker asks for each event.

Few entries are tried one by one, many by bit matrices (`lookup.py`). Those need numpy, which a device may
lack (`roamcast[fast]`): it is loaded with the first large table; without it all are tried one by one.
"""

from collections.abc import Container, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from roamcast.errors import WireError
from roamcast.extras import numpy_is_installed
from roamcast.filter import Filter
from roamcast.strategy.odmrp.summary.conditions import entries_of
from roamcast.strategy.odmrp.summary.digest import EventDigest
from roamcast.strategy.odmrp.summary.entry import SummaryEntry, merged, order
from roamcast.strategy.odmrp.summary.geometry import DEFAULT, SummaryOptions

__all__ = ["EventDigest", "Summary", "SummaryOptions"]

SUMMARY_VERSION = 1
_HEADER_BYTES = 4


class Summary:
    """A broker's aggregated subscriptions. Immutable; equal summaries have equal encodings."""

    __slots__ = ("__dict__", "entries", "options")

    entries: tuple[SummaryEntry, ...]
    options: SummaryOptions

    def __init__(self, entries: tuple[SummaryEntry, ...], options: SummaryOptions) -> None:
        """`entries` must come from `merged`; use `of` and `all_of` for anything else."""
        self.entries = entries
        self.options = options

    @classmethod
    def of(cls, filters: Iterable[Filter], options: SummaryOptions = DEFAULT) -> "Summary":
        """Where there are more entries than the options allow, similar ones are merged."""
        return cls.of_entries(
            (entry for each in filters for entry in entries_of(each, options.geometry)), options
        )

    @classmethod
    def of_entries(
        cls, entries: Iterable[SummaryEntry], options: SummaryOptions, *, most: int | None = None
    ) -> "Summary":
        """At most `most` entries; without it, as many as the options allow."""
        return cls(merged(entries, options.entries if most is None else most), options)

    @classmethod
    def all_of(cls, summaries: Iterable["Summary"], *, most: int | None = None) -> "Summary":
        """The union of one or more summaries."""
        several = list(summaries)
        options = several[0].options
        assert all(each.options == options for each in several)
        return cls.of_entries((entry for each in several for entry in each.entries), options, most=most)

    @classmethod
    def decode(cls, data: bytes, options: SummaryOptions = DEFAULT) -> "Summary":
        """What `encode` wrote on a node with the same sizes; WireError for anything else."""
        if len(data) < _HEADER_BYTES:
            raise WireError("summary", 0, f"needs at least {_HEADER_BYTES} octets, has {len(data)}")
        version, fingerprint, count = data[0], int.from_bytes(data[1:3], "big"), data[3]
        if version != SUMMARY_VERSION:
            raise WireError("summary version", 0, f"is {version}, not {SUMMARY_VERSION}")
        if fingerprint != options.geometry.fingerprint:
            raise WireError(
                "summary sizes", 1, f"are {fingerprint:04x}, this node has {options.geometry.fingerprint:04x}"
            )
        entries: list[SummaryEntry] = []
        at = _HEADER_BYTES
        for _ in range(count):
            entry, following = SummaryEntry.decode(data, at, options.geometry)
            if entries and order(entry) <= order(entries[-1]):
                raise WireError("entry", at, "does not follow in ascending order")
            entries.append(entry)
            at = following
        if at != len(data):
            raise WireError("summary", at, f"has {len(data) - at} octets after its end")
        return cls(tuple(entries), options)

    def encode(self) -> bytes:
        """| version 8 | sizes 16 | entries 8 | entry … |"""
        return self._encoded

    def union(self, other: "Summary") -> "Summary":
        """Matches what either matches. The limit of entries is at least the length of the longer one."""
        most = max(self.options.entries, len(self.entries), len(other.entries))
        return Summary.all_of((self, other), most=most)

    def matches(self, digest: EventDigest) -> bool:
        """False only if no subscription behind this summary matches the event."""
        return any(map(digest.satisfies, self.entries))

    def covers(self, other: "Summary") -> bool:
        """True only if every digest that matches `other` matches this summary too."""
        return all(any(wide.covers(narrow) for wide in self.entries) for narrow in other.entries)

    def narrowed_to_one(self) -> "Summary":
        """The one entry that covers all others: the conditions that every subscription shares."""
        return self.reduced(1)

    def reduced(self, most: int) -> "Summary":
        """The same, widened to at most `most` entries."""
        return Summary(merged(self.entries, most), self.options)

    @cached_property
    def vector(self) -> int:
        """EN, EL, EC, AC, SC_L, SC_R and SC_X, all elements and entries together; EN in the lowest bits."""
        geometry = self.options.geometry
        types = associations = elements = 0
        for entry in self.entries:
            more = entry.vector(geometry)
            types, associations, elements = (
                types | more.types,
                associations | more.associations,
                elements | more.elements,
            )
        return types | (associations | elements << geometry.associations.bits) << geometry.types.bits

    def weighed_vector(self) -> tuple[tuple[int, int], ...]:
        """`vector` split by the weights of `Geometry.weights`: each weight and its bits."""
        weights = self.options.geometry.weights()
        return tuple((weight, self.vector & places) for weight, places in weights.items())

    @property
    def is_empty(self) -> bool:
        """Nobody subscribes: nothing matches."""
        return not self.entries

    def __eq__(self, other: object) -> bool:
        return self._encoded == other._encoded if isinstance(other, Summary) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._encoded)

    def __repr__(self) -> str:
        return f"Summary.decode(bytes.fromhex({self._encoded.hex()!r}))"

    @cached_property
    def _encoded(self) -> bytes:
        geometry = self.options.geometry
        header = bytes([SUMMARY_VERSION]) + geometry.fingerprint.to_bytes(2, "big")
        return header + bytes([len(self.entries)]) + b"".join(each.encode(geometry) for each in self.entries)


if TYPE_CHECKING:
    from roamcast.strategy.odmrp.summary.lookup import SummaryMatrix

Owner = TypeVar("Owner", bound=int | str)

FEW_ENTRIES = 16  # up to here one by one is as fast as numpy's calls


class SummaryTable(Generic[Owner]):
    """Summaries by key (a node, a group). Changes are cheap; the next lookup rebuilds the matrices."""

    def __init__(self) -> None:
        self._summaries: dict[Owner, Summary] = {}
        self._entries = 0
        self._matrix: SummaryMatrix[Owner] | None = None

    def add(self, key: Owner, summary: Summary) -> None:
        """Keep a summary under a key, in place of the one it had."""
        known = self._summaries.get(key)
        if known is not summary and known != summary:
            self.remove(key)
            self._summaries[key] = summary
            self._entries += len(summary.entries)
            self._matrix = None

    def remove(self, key: Owner) -> None:
        known = self._summaries.pop(key, None)
        if known is not None:
            self._entries -= len(known.entries)
            self._matrix = None

    def keep(self, keys: Container[Owner]) -> None:
        """Remove all others."""
        for key in [key for key in self._summaries if key not in keys]:
            self.remove(key)

    def clear(self) -> None:
        self._summaries.clear()
        self._entries = 0
        self._matrix = None

    def __len__(self) -> int:
        return len(self._summaries)

    def __contains__(self, key: Owner) -> bool:
        return key in self._summaries

    def __getitem__(self, key: Owner) -> Summary:
        return self._summaries[key]

    def matching(self, digest: EventDigest) -> list[Owner]:
        """The keys whose summaries match, sorted."""
        if self._entries <= FEW_ENTRIES or not numpy_is_installed():
            return sorted(owner for owner, summary in self._summaries.items() if summary.matches(digest))
        if self._matrix is None:
            from roamcast.strategy.odmrp.summary.lookup import SummaryMatrix

            self._matrix = SummaryMatrix(self._summaries)
        return self._matrix.matching(digest)
