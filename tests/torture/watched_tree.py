"""A plug-in for `test_white_box_emulated.py`: the tree of a real node, which writes down what its overlay
sends and what changes in it. The protocol is the one that is deployed: its host is wrapped, no more."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec

from roamcast.host import Frame
from roamcast.strategy import STRATEGIES
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.tree.overlay.layer import Overlay
from roamcast.strategy.tree.overlay.messages import Label
from roamcast.strategy.tree.parameters import TreeOptions
from roamcast.strategy.tree.strategy import Tree
from roamcast.trace import OverlayChanged, Record
from roamcast.units import NodeId


class WatchedOptions(TreeOptions, frozen=True, kw_only=True):
    folder: str  # where each node has its file
    leaders: dict[str, int] = {}
    patient: tuple[NodeId, ...] = ()  # nodes that do not look for other partitions by themselves


class WatchedHost:
    def __init__(self, host: Any, folder: Path) -> None:
        self._host = host
        self._file = (folder / f"{host.node}.jsonl").open("a", buffering=1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def broadcast(self, frame: Frame) -> None:
        self._write("sent", None, frame.payload.hex())
        self._host.broadcast(frame)

    def unicast(self, to: NodeId, frame: Frame, *others: Any) -> None:
        self._write("sent", to, frame.payload.hex())
        self._host.unicast(to, frame, *others)

    def trace(self, record: Record) -> None:
        if isinstance(record, OverlayChanged):
            self._write("changed", record.change, record.peer, record.role)
        self._host.trace(record)

    def _write(self, *values: object) -> None:
        now = time.monotonic_ns() // 1000
        self._file.write(json.dumps([now, self._host.node, *values]) + "\n")


class WatchedTree(Tree):
    def make_overlay(self, context: StrategyContext) -> Overlay:
        options = self.options
        assert isinstance(options, WatchedOptions)
        host = WatchedHost(context.host, Path(options.folder))
        if context.host.node in options.patient:
            options = msgspec.structs.replace(options, reconnection_trigger=1000)
        return Overlay(host, context.underlay, options, self)

    def on_start(self) -> None:
        super().on_start()
        assert isinstance(self.options, WatchedOptions)
        node = self.host.node
        if str(node) in self.options.leaders:
            self.overlay.table.label = Label(self.options.leaders[str(node)], node, 0)


STRATEGIES.add("watched_tree", WatchedOptions, WatchedTree, default_underlay="beacons")
