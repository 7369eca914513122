"""Telling neighbours what has changed in the topology table, and hearing it (section 2.3, steps 2 and 3).

The paper sends each neighbour the items that changed since the last period. So a broker hears an item from
most of its neighbours, and the more brokers there are, the more neighbours each has. Here, of the items that
a neighbour is not known to have:

- Our own row, or a few rows, are sent at once. Of more rows we name the numbers only, and send those that the
  neighbour asks for. Each row is thus heard about once, however many neighbours there are.
- A row goes as its difference to the one that the neighbour has, if that is shorter and still remembered.
- What a neighbour has said or confirmed is not told to it again; what it has not confirmed is. That is
  remembered after it is a neighbour no more, for it may come back, until it restarts.
- Neighbours one hop away hear the same frame, if they are several; each confirms it in its own next one, or
  after a while by itself. In the first seconds, when everything is news, rows go whole there: a frame that
  all hear costs less than questions and answers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

import msgspec

from roamcast.host import Frame, Host, Kind
from roamcast.strategy.opportunistic.messages import (
    FRAMES,
    ROWS_MAX,
    TAKEN_MAX,
    Announcement,
    Content,
    Update,
    UpdateTaken,
)
from roamcast.strategy.opportunistic.reliable import Letter
from roamcast.strategy.opportunistic.rows import SEQUENCE_MAX, Row, RowChange
from roamcast.strategy.opportunistic.topology import Topology
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

ROWS_PER_LIFE = 1 << 20  # sequence numbers of a broker between two losses of its memory
SENT_AT_ONCE_MAX = 2
PEERS_MAX = 512
AGE_MAX_S = 1 << 20
UPDATE_OCTETS_MAX = 60_000  # a datagram holds little more
NUMBER_OCTETS_MAX = 9
ANNOUNCED_OCTETS = 1_000  # of rows in a frame that nobody repeats: a longer one would hardly get through
TAKEN_HOLD: Micros = 1_200 * MILLISECOND  # until an announcement of our own may say so, too
ASKED_MAX = 4_096
ASKED_FOR: Micros = SECOND  # a row is asked for once in so long, whoever offers it


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
    """The timer is `"updates taken"`."""

    def __init__(
        self, host: Host, topology: Topology, send: Callable[[NodeId, Content, Letter], object]
    ) -> None:
        self._host = host
        self._topology = topology
        self._send = send
        self._peers: dict[NodeId, Peer] = {}  # the one heard of last is the last
        self._updates = 0
        self._owed: dict[NodeId, int] = {}  # announcements that we have not confirmed
        self._asked: dict[NodeId, tuple[int, Micros]] = {}  # rows asked for: which, and when
        self.own_sequence = 0  # the highest of our own rows that others know

    def tell(
        self, neighbours: Iterable[NodeId], beside: Collection[NodeId] = (), *, is_beginning: bool = False
    ) -> None:
        """Step 2. `beside`: who hears us without anybody in between."""
        together = [neighbour for neighbour in neighbours if neighbour in beside]
        if len(together) > 1:
            self._announce(together, is_beginning)
        else:
            together = []
        for neighbour in neighbours:
            if neighbour not in together:
                peer = self._peer(neighbour)
                news = self._topology.news(peer.sequences, peer.version)
                if news:
                    self._tell(neighbour, peer, news, self._topology.version)

    def on_update(self, sender: NodeId, update: Update) -> bool:
        """Step 3; whether there was news."""
        version = self._topology.version
        self._confirm(sender, update.number, self._take_all(sender, update))
        return self._topology.version > version

    def on_announcement(self, sender: NodeId, announcement: Announcement) -> bool:
        """The same, of a frame to several; whether there was news."""
        taken = announcement.taken
        for node, number in zip(taken[::2], taken[1::2], strict=False):
            if node == self._host.node:
                self.on_taken(sender, UpdateTaken(number, announcement.life))
        version, update = self._topology.version, announcement.update
        wanted = self._take_all(sender, update)
        if wanted or len(self._owed) >= TAKEN_MAX:
            self._confirm(sender, update.number, wanted)
        else:
            if not self._owed:
                hold = int(TAKEN_HOLD * (0.9 + 0.1 * self._host.random.random()))
                self._host.set_timer("updates taken", self._host.now() + hold)
            self._owed[sender] = update.number
        return self._topology.version > version

    def on_timer(self) -> None:
        """Nothing of our own was to be said."""
        owed, self._owed = self._owed, {}
        for sender, number in owed.items():
            self._confirm(sender, number, [])

    def _take_all(self, sender: NodeId, update: Update) -> list[int]:
        """What is in an update, and which rows we want of it."""
        peer = self._peer(sender)
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
        return wanted

    def _confirm(self, sender: NodeId, number: int, wanted: list[int]) -> None:
        taken = UpdateTaken(number, self._life(), tuple(wanted))
        self._send(sender, taken, Letter(b"", Kind.CONTROL, "update"))

    def _life(self) -> int:
        own = self._topology.row(self._host.node)
        return 0 if own is None else life(own.sequence)

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
        at_once = UPDATE_OCTETS_MAX if question is not None or len(rows) <= SENT_AT_ONCE_MAX else 0
        update = self._update(rows, [peer], at_once)
        self._send(neighbour, update, Letter(b"", Kind.CONTROL, "update"))

    def _announce(self, neighbours: list[NodeId], is_beginning: bool) -> None:
        """One frame for all of them, with what any of them is not known to have."""
        lacking: dict[NodeId, Row] = {}
        told: list[Peer] = []
        for neighbour in neighbours:
            peer = self._peer(neighbour)
            news = self._topology.news(peer.sequences, peer.version)
            if news:
                told.append(peer)
                lacking.update((row.broker, row) for row in news)
        if not told:
            return
        rows = _fitting(list(lacking.values()))
        self._updates += 1
        telling = Telling(self._updates, _sequences(rows), self._topology.version, len(rows) == len(lacking))
        for peer in told:
            peer.telling = telling
        is_short = is_beginning or len(rows) <= SENT_AT_ONCE_MAX
        update = self._update(rows, told, ANNOUNCED_OCTETS if is_short else 0)
        taken = tuple(number for pair in self._owed.items() for number in pair)
        self._owed.clear()
        self._host.cancel_timer("updates taken")
        frame = FRAMES.encode(Announcement(update, self._life(), taken))
        self._host.broadcast(Frame(frame, Kind.CONTROL, "update", None, True))

    def _update(self, rows: list[Row], peers: list[Peer], at_once: int) -> Update:
        """Our own row in any case, others as far as so many octets hold them; of the rest the numbers."""
        whole: list[Row] = []
        changes: list[RowChange] = []
        offered: list[int] = []
        for row in rows:
            octets = 12 + 2 * len(row.links)
            if row.broker != self._host.node and octets > at_once:
                offered += (row.broker, *divmod(row.sequence, ROWS_PER_LIFE))
                continue
            at_once -= octets
            age = (self._host.now() - self._topology.made_at(row.broker) + SECOND // 2) // SECOND
            bases = {peer.sequences.get(row.broker, -1) for peer in peers} - {row.sequence}
            change = self._topology.change(row, bases.pop()) if len(bases) == 1 else None
            if change is None:
                whole.append(msgspec.structs.replace(row, age=age))
            else:
                changes.append(msgspec.structs.replace(change, age=age))
        return Update(self._updates, tuple(whole), tuple(changes), tuple(offered))

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
        if known is not None and known.sequence >= sequence:
            return False
        asked = self._asked.get(broker)
        if asked is not None and asked[0] >= sequence and self._host.now() - asked[1] < ASKED_FOR:
            return False  # somebody else's answer is on its way
        if len(self._asked) >= ASKED_MAX:
            self._asked.clear()
        self._asked[broker] = (sequence, self._host.now())
        return True

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
