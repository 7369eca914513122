"""Telling neighbours what has changed in the topology table, and hearing it (section 2.3, steps 2 and 3).

The paper sends each neighbour the items that changed since the last period. So a broker hears an item from
most of its neighbours, and the more brokers there are, the more neighbours each has. Here, of the items that
a neighbour is not known to have:

- Our own row, or a few rows, are sent at once. Of more rows we name the numbers only, and send those that the
  neighbour asks for. Each row is thus heard about once, however many neighbours there are.
- A row goes as its difference to the one that the neighbour has, if that is shorter and still remembered.
- What a neighbour has said or confirmed is not told to it again; what it has not confirmed is. That is
  remembered after it is a neighbour no more, for it may come back, until it restarts.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from roamcast.host import Host, Kind
from roamcast.strategy.opportunistic.messages import ROWS_MAX, Content, Update, UpdateTaken
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.rows import SEQUENCE_MAX, Row, RowChange
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.units import SECOND, Micros, NodeId

ROWS_PER_LIFE = 1 << 20  # sequence numbers of a broker between two losses of its memory
SENT_AT_ONCE_MAX = 2
PEERS_MAX = 512
AGE_MAX_S = 1 << 20
UPDATE_OCTETS_MAX = 60_000  # a datagram holds little more
NUMBER_OCTETS_MAX = 9


class Peer:
    """What another broker knows of the topology table, as far as we know."""

    def __init__(self) -> None:
        self.life = 0
        self.sequences: dict[NodeId, int] = {}
        self.version = 0  # of our table: it knows all that we knew then
        self.telling: Telling | None = None


class Telling(msgspec.Struct, frozen=True):
    """An update that has not been confirmed yet."""

    number: int
    sequences: dict[NodeId, int]
    version: int  # of our table
    is_all: bool  # that we knew
    is_answer: bool = False  # to the neighbour's question


class Propagation:
    def __init__(
        self, host: Host, topology: Topology, send: Callable[[NodeId, Content, Letter], None]
    ) -> None:
        self._host = host
        self._topology = topology
        self._send = send
        self._peers: dict[NodeId, Peer] = {}  # the one heard of last is the last
        self._updates = 0
        self.own_sequence = 0  # the highest of our own rows that others know

    def tell(self, neighbours: Iterable[NodeId]) -> None:
        """Step 2."""
        for neighbour in neighbours:
            peer = self._peer(neighbour)
            news = self._topology.news(peer.sequences, peer.version)
            if news:
                self._tell(neighbour, peer, news, self._topology.version)

    def on_update(self, sender: NodeId, update: Update) -> bool:
        """Step 3; whether there was news."""
        peer = self._peer(sender)
        version = self._topology.version
        wanted: list[int] = []
        for row in update.rows:
            self._forget_if_behind(sender, peer, row.broker, row.sequence)
            self._take(row, row.age)
            self._knows(peer, row.broker, row.sequence)
        for change in update.changes:
            self._forget_if_behind(sender, peer, change.broker, change.sequence)
            known = self._topology.row(change.broker)
            if known is not None and known.sequence == change.base:
                row_now = change.row(known)
                if row_now is not None:
                    self._take(row_now, change.age)
            elif self._is_news(change.broker, change.sequence):
                wanted += self._question(change.broker)
            self._knows(peer, change.broker, change.sequence)
        for broker, sequence in _numbered(update.offered):
            if self._is_news(broker, sequence):
                wanted += self._question(broker)
            self._knows(peer, broker, sequence)
        own = self._topology.row(self._host.node)
        taken = UpdateTaken(update.number, 0 if own is None else life(own.sequence), tuple(wanted))
        self._send(sender, taken, Letter(b"", Kind.CONTROL, "update"))
        return self._topology.version > version

    def on_taken(self, sender: NodeId, taken: UpdateTaken) -> None:
        peer = self._peers.get(sender)
        if peer is None or peer.telling is None or peer.telling.number != taken.number:
            return
        telling, peer.telling = peer.telling, None
        self._lives(peer, taken.life)
        lacking: dict[NodeId, Row] = {}
        for broker, sequence in _numbered(taken.wanted):
            row = self._topology.row(broker)
            if broker in telling.sequences and row is not None and sequence < row.sequence:
                peer.sequences[broker] = sequence
                lacking[broker] = row
        for broker, sequence in telling.sequences.items():
            if broker not in lacking:
                self._knows(peer, broker, sequence)
        if not lacking:
            peer.version = max(peer.version, telling.version if telling.is_all else 0)
        elif telling.is_answer:
            peer.version = 0  # it has forgotten something
        else:
            self._tell(sender, peer, list(lacking.values()), telling.version, question=telling)

    def forget_unconfirmed(self, broker: NodeId) -> None:
        """It is a neighbour no more."""
        if broker in self._peers:
            self._peers[broker].telling = None

    @property
    def is_taken(self) -> bool:
        """Whether the neighbours have confirmed all that they were told."""
        return all(peer.telling is None for peer in self._peers.values())

    # Private.

    def _tell(
        self,
        neighbour: NodeId,
        peer: Peer,
        news: list[Row],
        version: int,
        *,
        question: Telling | None = None,
    ) -> None:
        """The neighbour hears the rows, what is new in them, or their numbers; so many as one update may
        have, the others in the next period. `question`: the update that it has asked about."""
        rows = _fitting(news)
        is_all = len(rows) == len(news) and (question is None or question.is_all)
        self._updates += 1
        peer.telling = Telling(self._updates, _sequences(rows), version, is_all, question is not None)
        own = self._host.node
        whole: list[Row] = []
        changes: list[RowChange] = []
        offered: list[int] = []
        for row in rows:
            if question is None and row.broker != own and len(rows) > SENT_AT_ONCE_MAX:
                offered += (row.broker, *divmod(row.sequence, ROWS_PER_LIFE))
                continue
            age = (self._host.now() - self._topology.made_at(row.broker) + SECOND // 2) // SECOND
            change = self._topology.change(row, peer.sequences.get(row.broker, -1))
            if change is None:
                whole.append(msgspec.structs.replace(row, age=age))
            else:
                changes.append(msgspec.structs.replace(change, age=age))
        update = Update(self._updates, tuple(whole), tuple(changes), tuple(offered))
        self._send(neighbour, update, Letter(b"", Kind.CONTROL, "update"))

    def _take(self, row: Row, age_s: int) -> None:
        if row.broker == self._host.node:
            self._heard_of_own(row.sequence)
        else:
            made_at: Micros = self._host.now() - min(age_s, AGE_MAX_S) * SECOND
            if self._topology.update(row, made_at) and row.broker in self._peers:
                self._lives(self._peers[row.broker], life(row.sequence))

    def _is_news(self, broker: NodeId, sequence: int) -> bool:
        if broker == self._host.node:
            self._heard_of_own(sequence)
            return False
        known = self._topology.row(broker)
        return known is None or known.sequence < sequence

    def _heard_of_own(self, sequence: int) -> None:
        """From before we lost our memory: the next one must be later than that, if there can be one."""
        if sequence <= SEQUENCE_MAX - 2 * ROWS_PER_LIFE:
            self.own_sequence = max(self.own_sequence, sequence)

    def _question(self, broker: NodeId) -> tuple[int, int, int]:
        """For a row, or what has changed since the one we have."""
        known = self._topology.row(broker)
        return (broker, *divmod(0 if known is None else known.sequence, ROWS_PER_LIFE))

    def _peer(self, broker: NodeId) -> Peer:
        peer = self._peers.pop(broker, None) or Peer()
        self._peers[broker] = peer
        for oldest in list(islice(self._peers, max(len(self._peers) - PEERS_MAX, 0))):
            del self._peers[oldest]
        return peer

    def _knows(self, peer: Peer, broker: NodeId, sequence: int) -> None:
        if self._topology.row(broker) is not None:
            if sequence > peer.sequences.get(broker, -1):
                peer.sequences[broker] = sequence
        else:
            peer.sequences.pop(broker, None)  # nobody talks of it any more

    def _forget_if_behind(self, sender: NodeId, peer: Peer, broker: NodeId, sequence: int) -> None:
        """A broker that speaks of itself with a lower number than we know has lost its stable storage."""
        known = self._topology.row(sender)
        if broker == sender and known is not None and sequence < known.sequence:
            peer.sequences.clear()
            peer.version = 0

    def _lives(self, peer: Peer, number: int) -> None:
        if number > peer.life:
            peer.life = number
            peer.sequences.clear()
            peer.version = 0


def life(sequence: int) -> int:
    return sequence // ROWS_PER_LIFE


def next_life(sequence: int) -> int:
    """The first sequence number after a loss of memory, from any one before."""
    return -(-sequence // ROWS_PER_LIFE) * ROWS_PER_LIFE


def _fitting(rows: list[Row]) -> list[Row]:
    """As many as surely fit into one update."""
    octets = 0
    for count, row in enumerate(rows[:ROWS_MAX]):
        octets += (len(row.links) + len(Row.__struct_fields__)) * NUMBER_OCTETS_MAX
        if octets > UPDATE_OCTETS_MAX:
            return rows[:count]
    return rows[:ROWS_MAX]


def _sequences(rows: Iterable[Row]) -> dict[NodeId, int]:
    return {row.broker: row.sequence for row in rows}


def _numbered(numbers: tuple[int, ...]) -> Iterator[tuple[NodeId, int]]:
    """Brokers and sequence numbers; those come in two parts, which are shorter than one."""
    for broker, lives, count in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=False):
        yield broker, min(lives * ROWS_PER_LIFE + count, SEQUENCE_MAX)
