"""The contact plan of a recording as one file, CSV or Parquet, made of the contacts that workers found.

Contacts are cut at the borders of chunks; here they are joined, chunk by chunk, so that only the contacts of
one chunk and those that stand at its borders are in memory.
"""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from roamcast.errors import FileError, InputError
from roamcast.lab.recordings.contact_job import CONTACTS, ContactGrid, contacts_of
from roamcast.lab.storage import Storage
from roamcast.world.formats.text import save_lines, seconds_text
from roamcast.world.trajectory import Numbers


class PlanFile(NamedTuple):
    """Where a plan is written, and beside it the file with the names of its nodes."""

    folder: Storage
    plan: str
    names: str
    is_csv: bool

    @staticmethod
    def of(out: str | Path) -> "PlanFile":
        folder, name = Storage.of_file(out)
        if not name.endswith((".parquet", ".csv", ".csv.gz")):
            raise InputError(str(out), "is no name for a plan; it ends in .parquet, .csv or .csv.gz")
        stem = name.removesuffix(".gz")
        target = PlanFile(folder, name, f"{Path(stem).stem}.names.csv", stem.endswith(".csv"))
        target.refuse_existing()
        if folder.path is not None and not folder.path.is_dir():
            raise FileError(str(out), "cannot be written: its folder does not exist")
        return target

    def refuse_existing(self) -> None:
        for file in (self.plan, self.names):
            if self.folder.exists(file):
                raise FileError(
                    self.folder.name(file), "exists already; a plan is never written over another thing"
                )

    def write(self, folder: Storage, files: Sequence[int], layout: ContactGrid, names: list[str]) -> int:
        """Write the plan in its order; gives how many contacts it has. The names are written before the plan,
        so a plan that exists has its names.

        `files`: how many files of contacts each chunk has in `folder`.
        """
        cut = _CutContacts(folder, files, layout)
        with tempfile.TemporaryDirectory(prefix=f".{self.plan}-", dir=self.folder.path) as name:
            whole, beside = Path(name) / self.plan, Path(name) / self.names
            if self.is_csv:
                rows = _ChangeRows(cut)
                save_lines(whole, chain([f"# nodes: {layout.nodes}", "time,i,j,state"], rows))
                count = rows.contacts
            else:
                count = _save_parquet(whole, cut, Path(name))
            self.refuse_existing()
            if names != [str(number) for number in range(len(names))]:
                lines = (f"{number},{_quoted(name)}" for number, name in enumerate(names))
                save_lines(beside, chain(["node,name"], lines))
                self.folder.place(beside, self.names)
            self.folder.place(whole, self.plan)
        return count


class _Cut(NamedTuple):
    """The contacts of a chunk, cut at its borders, by start and pair."""

    pair: Numbers
    start: Numbers
    end: Numbers


class _CutContacts:
    def __init__(self, folder: Storage, files: Sequence[int], layout: ContactGrid) -> None:
        self._folder = folder
        self._files = files
        self.layout = layout

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, chunk: int) -> _Cut:
        if not self._files[chunk]:
            nothing = np.empty(0, dtype=np.int64)
            return _Cut(nothing, nothing, nothing)
        sender, receiver, start, end = contacts_of(self._folder, chunk, self._files[chunk])
        pair = sender * self.layout.nodes + receiver
        order = np.lexsort((pair, start))
        return _Cut(pair[order], start[order], end[order])


class _ChangeRows:
    """The lines of a CSV plan: by time, ends before beginnings, then by pair."""

    def __init__(self, cut: _CutContacts) -> None:
        self._cut = cut
        self.contacts = 0

    def __iter__(self) -> Iterator[str]:
        borders, nodes = self._cut.layout.borders, self._cut.layout.nodes
        stands = np.empty(0, dtype=np.int64)  # pairs that are in contact at the begin of the chunk
        for chunk in range(len(self._cut)):
            pair, start, end = self._cut[chunk]
            begins = ~((start == borders[chunk]) & np.isin(pair, stands))
            touches = pair[end == borders[chunk + 1]]
            if chunk + 1 < len(self._cut):
                after = self._cut[chunk + 1]
                stands = np.intersect1d(touches, after.pair[after.start == borders[chunk + 1]])
            else:
                stands = touches[:0]
            ends = ~((end == borders[chunk + 1]) & np.isin(pair, stands))
            self.contacts += int(np.count_nonzero(begins))
            moment = np.concatenate((end[ends], start[begins]))
            is_up = np.repeat([False, True], [np.count_nonzero(ends), np.count_nonzero(begins)])
            pairs = np.concatenate((pair[ends], pair[begins]))
            order = np.lexsort((pairs, is_up, moment))
            columns = (moment[order].tolist(), is_up[order].tolist(), pairs[order].tolist())
            for at, up, both in zip(*columns, strict=True):
                yield f"{seconds_text(at)},{both // nodes},{both % nodes},{'up' if up else 'down'}"


def _save_parquet(path: Path, cut: _CutContacts, folder: Path) -> int:
    """Rows by start. When a contact ends is known only from later chunks, so they are joined from the last to
    the first, and then written from the first to the last."""
    layout = cut.layout
    joined = [folder / f"{chunk}.npy" for chunk in range(len(cut))]
    open_pairs = open_ends = np.empty(0, dtype=np.int64)  # contacts at the begin of the chunk behind
    waiting: _Unjoined | None = None
    for chunk in reversed(range(len(cut))):
        pair, start, end = cut[chunk]
        at_border = np.flatnonzero(end == layout.borders[chunk + 1])
        found, ours, theirs = np.intersect1d(pair[at_border], open_pairs, True, return_indices=True)
        end = end.copy()
        end[at_border[ours]] = open_ends[theirs]
        if waiting is not None:
            waiting(found)
        waiting = _Unjoined(joined[chunk], _Cut(pair, start, end), layout.borders[chunk])
        first = start == layout.borders[chunk]
        open_pairs, open_ends = pair[first], end[first]
    if waiting is not None:
        waiting(open_pairs[:0])
    metadata = {"nodes": str(layout.nodes), "duration": str(layout.duration), "begins": str(layout.begins)}
    schema = pa.schema([field.with_nullable(False) for field in CONTACTS], metadata=metadata)
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for file in joined:
            pair, start, end = np.load(file)
            columns = (pair // layout.nodes, pair % layout.nodes, start, end)
            arrays = [pa.array(c).cast(field.type) for c, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(pair)
    return count


class _Unjoined(NamedTuple):
    """A chunk whose contacts have their ends; which of them began before it, the chunk before tells."""

    file: Path
    contacts: _Cut
    border: int

    def __call__(self, joined: Numbers) -> None:
        pair, start, end = self.contacts
        kept = ~((start == self.border) & np.isin(pair, joined))
        np.save(self.file, np.stack([pair[kept], start[kept], end[kept]]))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in ',"') else name
