"""One digest against many summaries, and one summary against many digests, with numpy.

The vectors that entries hold under one key stand side by side as columns of a bit matrix, eight columns
to an octet (a bit-sliced signature file): a token's k bits are k rows, and the AND of these rows shows for
all columns at once which of them contain the token. An entry matches if none of its columns fails.

Two layouts. `Sheets` has one matrix for each key, with columns for those entries alone that have the key.
`Stack` has all matrices in one, each with a column for every entry, so that one digest takes a handful of
numpy calls instead of a handful for each key; it is used as long as it is small.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from roamcast.strategy.odmrp.summary.bloom import HASHES_MAX, positions
from roamcast.strategy.odmrp.summary.digest import DigestQuestion, EventDigest
from roamcast.strategy.odmrp.summary.entry import TYPE_KEY, Key, SummaryEntry
from roamcast.strategy.odmrp.summary.geometry import DEFAULT, Geometry

if TYPE_CHECKING:
    from roamcast.strategy.odmrp.summary.summary import Summary

Owner = TypeVar("Owner", bound=int | str)
Indexes: TypeAlias = npt.NDArray[np.intp]
Octets: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

STACK_BYTES_MAX = 1 << 23  # chosen by us; where a `Stack` would be larger, `Sheets` are used


class SummaryMatrix(Generic[Owner]):
    """Summaries by key (a node, a group), prepared once."""

    def __init__(self, summaries: "Mapping[Owner, Summary]") -> None:
        self._owners = sorted(summaries)
        several = [summaries[owner] for owner in self._owners]
        entries = [entry for summary in several for entry in summary.entries]
        self._owner_of = np.repeat(np.arange(len(several)), [len(each.entries) for each in several])
        geometry = several[0].options.geometry if several else DEFAULT.geometry
        is_small = Stack.bytes_for(entries, geometry) <= STACK_BYTES_MAX
        self._sheets = Stack(entries, geometry) if is_small else Sheets.of(entries, geometry)

    def matching(self, digest: EventDigest) -> list[Owner]:
        """The keys whose summaries match, sorted."""
        hits = np.zeros(len(self._owners), bool)
        hits[self._owner_of[self._sheets.satisfied(digest)]] = True
        return [self._owners[at] for at in np.flatnonzero(hits)]


class DigestTable:
    """Many digests, and which of them a summary matches. Their questions are combined once."""

    def __init__(self, digests: Iterable[EventDigest]) -> None:
        self._digests = list(digests)
        self._questions: dict[Key, DigestQuestions | None] = {}

    def __len__(self) -> int:
        return len(self._digests)

    def matching(self, summary: "Summary") -> Flags:
        """Whether each digest matches."""
        sheets = Sheets.of(summary.entries, summary.options.geometry)
        fine = np.ones((len(self._digests), sheets.size), bool)
        for key, sheet in sheets.by_key.items():
            questions = self._asked(key)
            answers = np.zeros((len(self._digests), len(sheet.entries)), bool)
            if questions is not None:
                answers[questions.digests] = questions.answered(sheet)
            fine[:, sheet.entries] &= answers
        return np.asarray(fine.any(axis=1))

    def _asked(self, key: Key) -> "DigestQuestions | None":
        if key not in self._questions:
            asked = [(at, digest.question(key)) for at, digest in enumerate(self._digests)]
            self._questions[key] = DigestQuestions.of([(at, each) for at, each in asked if each is not None])
        return self._questions[key]


class Sheet(NamedTuple):
    """All vectors under one key: a row for each bit, a column for each entry, eight columns to an octet."""

    rows: Octets
    entries: Indexes  # of each column


class Sheets(NamedTuple):
    size: int  # how many entries
    by_key: dict[Key, Sheet]

    @classmethod
    def of(cls, entries: Sequence[SummaryEntry], geometry: Geometry) -> "Sheets":
        by_key = {
            key: Sheet(_rows(column.values(), _bits_of(key, geometry)), np.array(list(column), np.intp))
            for key, column in _columns(entries).items()
        }
        return cls(len(entries), by_key)

    def satisfied(self, digest: EventDigest) -> Flags:
        """Of each entry, whether the digest satisfies it."""
        fine = np.ones(self.size, bool)
        for key, sheet in self.by_key.items():
            question = digest.question(key)
            if question is None:
                fine[sheet.entries] = False
            else:
                held = np.bitwise_and.reduce(sheet.rows[rows_of(question)], axis=1)  # a row for each token
                answer = np.unpackbits(_united(held, question), count=len(sheet.entries))
                fine[sheet.entries] &= answer.view(bool)
        return fine


class Stack:
    """Every key's matrix over every entry. An entry without the key has all bits: it contains any token."""

    def __init__(self, entries: Sequence[SummaryEntry], geometry: Geometry) -> None:
        self.size = len(entries)
        self._first_row: dict[Key, int] = {}
        self._without: dict[Key, Octets] = {}  # the entries that do not need the key
        matrices = []
        row = 0
        for key, column in _columns(entries).items():
            bits = _bits_of(key, geometry)
            everything = (1 << bits) - 1
            matrices.append(_rows((column.get(at, everything) for at in range(self.size)), bits))
            self._first_row[key] = row
            self._without[key] = np.packbits(np.array([at not in column for at in range(self.size)]))
            row += bits
        self._rows: Octets = np.concatenate(matrices) if matrices else np.zeros((0, 0), np.uint8)

    @staticmethod
    def bytes_for(entries: Sequence[SummaryEntry], geometry: Geometry) -> int:
        keys = {key for entry in entries for key, _ in entry.constraints}
        return sum(_bits_of(key, geometry) for key in keys) * (len(entries) + 7) // 8

    def satisfied(self, digest: EventDigest) -> Flags:
        """Of each entry, whether the digest satisfies it."""
        answer = np.full((self.size + 7) // 8, 255, np.uint8)
        tokens: list[Indexes] = []
        starts: list[int] = []  # of each run of alternative tokens
        texts: list[tuple[int, int, int]] = []  # of texts, the runs of masks, lefts and rights
        plain: list[int] = []
        count = 0
        for key, first in self._first_row.items():
            question = digest.question(key)
            if question is None:
                answer &= self._without[key]
                continue
            tokens.append(rows_of(question) + first)
            run = len(starts)
            for alike in filter(None, (question.masks, question.lefts, question.rights)):
                starts.append(count)
                count += len(alike)
            if question.lefts:
                texts.append((run, run + 1, run + 2))
            else:
                plain.append(run)
        if tokens:
            held = np.bitwise_and.reduce(self._rows[_stacked(tokens)], axis=1)
            runs = np.bitwise_or.reduceat(held, starts, axis=0)
            if plain:
                answer &= np.bitwise_and.reduce(runs[plain], axis=0)
            for masks, lefts, rights in texts:
                answer &= runs[masks] | runs[lefts] & runs[rights]
        return np.unpackbits(answer, count=self.size).view(bool)


class DigestQuestions(NamedTuple):
    """The questions of several digests under one key, combined."""

    digests: Indexes  # the digest of each question
    masks: "Tokens | None"
    lefts: "Tokens | None"
    rights: "Tokens | None"

    @classmethod
    def of(cls, asked: list[tuple[int, DigestQuestion]]) -> "DigestQuestions | None":
        if not asked:
            return None
        return cls(
            np.array([at for at, _ in asked], np.intp),
            Tokens.of([rows_of(each)[: len(each.masks)] for _, each in asked]),
            Tokens.of([rows_of(each)[len(each.masks) :][: len(each.lefts)] for _, each in asked]),
            Tokens.of([rows_of(each)[len(each.masks) + len(each.lefts) :] for _, each in asked]),
        )

    def answered(self, sheet: Sheet) -> Flags:
        """Rows: digests. Columns: those of the sheet."""
        answer = np.zeros((len(self.digests), sheet.rows.shape[1]), np.uint8)
        if self.lefts is not None and self.rights is not None:
            answer[self.lefts.owners] = self.lefts.held(sheet.rows) & self.rights.held(sheet.rows)
        if self.masks is not None:
            answer[self.masks.owners] |= self.masks.held(sheet.rows)
        return np.unpackbits(answer, axis=1, count=len(sheet.entries)).view(bool)


class Tokens(NamedTuple):
    owners: Indexes  # the questions that have such tokens
    rows: Indexes  # their tokens one after the other, a row of bits for each
    starts: Indexes  # where each owner's begin

    @classmethod
    def of(cls, tokens: list[Indexes]) -> "Tokens | None":
        owners = [at for at, each in enumerate(tokens) if len(each)]
        if not owners:
            return None
        rows = [tokens[at] for at in owners]
        starts = np.cumsum([0, *(len(each) for each in rows[:-1])])
        return cls(np.array(owners, np.intp), _stacked(rows), starts)

    def held(self, sheet: Octets) -> Octets:
        """A row for each owner: the columns that contain one of its tokens."""
        found: Octets = np.bitwise_or.reduceat(
            np.bitwise_and.reduce(sheet[self.rows], axis=1), self.starts, axis=0
        )
        return found


_WIDTH = 4  # bits of a token in a row; most have no more


@lru_cache(maxsize=1 << 14)
def rows_of(question: DigestQuestion) -> Indexes:
    """The bits of all masks, lefts and rights, one row for each, padded with its last bit."""
    found = [positions(mask) for mask in question.masks + question.lefts + question.rights]
    width = HASHES_MAX if max(map(len, found)) > _WIDTH else _WIDTH
    return np.array([each + each[-1:] * (width - len(each)) for each in found], np.intp)


def _stacked(tokens: list[Indexes]) -> Indexes:
    width = max(each.shape[1] for each in tokens)
    if any(each.shape[1] < width for each in tokens):
        tokens = [np.pad(each, ((0, 0), (0, width - each.shape[1])), "edge") for each in tokens]
    return np.concatenate(tokens)


def _bits_of(key: Key, geometry: Geometry) -> int:
    if key == TYPE_KEY:
        return geometry.types.bits
    return geometry.associations.bits if key >> 16 else geometry.element_bits


def _columns(entries: Sequence[SummaryEntry]) -> dict[Key, dict[int, int]]:
    """Under each key, the vectors by the number of their entry."""
    columns: dict[Key, dict[int, int]] = {}
    for number, entry in enumerate(entries):
        for key, vector in entry.constraints:
            columns.setdefault(key, {})[number] = vector
    return columns


def _rows(vectors: Iterable[int], bits: int) -> Octets:
    octets = b"".join(vector.to_bytes(bits // 8, "little") for vector in vectors)
    table = np.frombuffer(octets, np.uint8).reshape(-1, bits // 8)
    flags = np.unpackbits(table, axis=1, bitorder="little")
    return np.packbits(np.ascontiguousarray(flags.T), axis=1)


def _united(held: Octets, question: DigestQuestion) -> Octets:
    masks, lefts = len(question.masks), len(question.lefts)
    answer: Octets = np.bitwise_or.reduce(held[:masks], axis=0)
    if lefts:
        beginnings = np.bitwise_or.reduce(held[masks : masks + lefts], axis=0)
        answer |= beginnings & np.bitwise_or.reduce(held[masks + lefts :], axis=0)
    return answer
