"""The topology table from neighbour to neighbour in the overlay (section 2.3, steps 2 and 3).

Once in each period a broker sends its neighbours what has changed in its table since the last time: its own
links, and what it heard from others. So news goes one step of the overlay in each period. A neighbour that is
new gets the whole table.

That is for links alone (`propagation = "neighbours"`). That somebody is a broker, and how loaded, all nodes
hear by its row (`board.py`): clients ask nobody. By default links are in that row too.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from roamcast.host import Host
from roamcast.strategy.opportunistic.board import BROKER, ENTRIES_MAX, Board, BoardEntry, in_frames
from roamcast.strategy.opportunistic.messages import BrokerRow, TopologyMessage
from roamcast.strategy.opportunistic.stream import PeerStreams
from roamcast.units import Micros, NodeId


class Propagation:
    def __init__(self, host: Host, board: Board, streams: PeerStreams) -> None:
        self._host = host
        self._board = board
        self._streams = streams
        self._items: dict[NodeId, BoardEntry] = {}
        self._changed: dict[NodeId, None] = {}  # since the last propagation
        self._told: set[NodeId] = set()  # who has the table as it was then

    def enter(self, broker: NodeId, entry: BoardEntry) -> None:
        self._items[broker] = entry
        self._changed[broker] = None

    def forget(self, broker: NodeId) -> None:
        """Forget a node that is no broker any more, or has been silent for long."""
        self._items.pop(broker, None)
        self._changed.pop(broker, None)
        self.on_reset(broker)

    def on_reset(self, peer: NodeId) -> None:
        """A neighbour may have lost its table: it gets the whole of ours."""
        self._told.discard(peer)

    def news(self, message: TopologyMessage, held: Micros) -> Iterator[tuple[NodeId, BoardEntry]]:
        """Step 3: the part of an update that is newer than what stands here."""
        now = self._host.now()
        for row in message.rows:
            known = self._items.get(row.node)
            is_newer = len(self._items) < ENTRIES_MAX if known is None else known.version < row.version
            if row.kind == BROKER and is_newer:
                entry = self._board.opened(row, known or self._board.find(BROKER, row.node), now - held)
                if entry is not None:
                    yield row.node, entry

    def tell(self, neighbours: Collection[NodeId]) -> None:
        """Step 2."""
        changed, self._changed = self._changed, {}
        find, since = self._board.find, self._host.now() - self._board.lifetime
        for broker in [
            one for one, item in self._items.items() if item.made_at < since and not find(BROKER, one)
        ]:
            self.forget(broker)  # its row never came
        for broker in sorted(self._told - set(neighbours)):
            self._take_back(broker)
        self._told &= set(neighbours)
        for broker in sorted(neighbours):
            # What the last messages did not bring: the newest of it goes.
            wanted = {*changed, *self._take_back(broker)} if broker in self._told else self._items.keys()
            entries = [((BROKER, node), self._items[node]) for node in sorted(wanted) if node in self._items]
            for rows in in_frames(entries, self._host.now()):
                self._streams.write(broker, TopologyMessage(rows))
        self._told |= set(neighbours)

    def merged(self, broker: NodeId, told: BoardEntry) -> tuple[BrokerRow, Micros]:
        """What a broker said of itself last, to all or to its neighbours; and of its links, and when."""
        said, item = told.content, self._items.get(broker)
        assert isinstance(said, BrokerRow)
        if item is None or said.is_over:
            return said, told.made_at
        links = item.content
        assert isinstance(links, BrokerRow)
        if links.boot < said.boot:
            return said, told.made_at  # those of an earlier start
        if item.version > told.version:
            return links, item.made_at
        return replace(said, links=links.links, ring=links.ring), item.made_at

    def _take_back(self, broker: NodeId) -> set[NodeId]:
        """What is named in messages to this one that it has not confirmed."""
        if not any(isinstance(message, TopologyMessage) for message in self._streams.unconfirmed(broker)):
            return set()
        messages = self._streams.take_back(broker, (TopologyMessage,))
        return {row.node for one in messages if isinstance(one, TopologyMessage) for row in one.rows}
