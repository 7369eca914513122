"""What a root does: lead, say so, look for other trees, or wait for the tree it has yielded to.

The group hellos of sections 4.3 and 5.4, the election of a leader (4.3, 4.4), and the state of a node that
has no upstream. The first part of the evolved protocol; `link_keeping.py` builds on it.
"""

from roamcast.host import Host
from roamcast.strategy.tree.overlay.label import RANKS_PER_HOP, Label
from roamcast.strategy.tree.overlay.links import LinkOffer, LinkState
from roamcast.strategy.tree.overlay.messages import HOPS_MAX, LINKS_MAX, GroupHello, Sighting
from roamcast.strategy.tree.overlay.parameters import TreeOptions
from roamcast.strategy.tree.overlay.protocol import OverlayListener, TreeProtocol
from roamcast.strategy.tree.overlay.routes import RequestKey
from roamcast.strategy.tree.overlay.search import TreeSearch
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

# Chosen by us: fewer messages for a slower reaction.
MERGE_DELAY: Micros = 200 * MILLISECOND  # at most, at random; before a leader asks for other partitions
SIGHTING_INTERVAL: Micros = 2 * SECOND  # at least, between two searches because of another tree in range
SILENCES_MAX = 3  # missing hellos in a row before an upstream is left that still answers probes


class Leadership(TreeProtocol):
    def __init__(
        self,
        host: Host,
        options: TreeOptions,
        listener: OverlayListener,
        nearby: set[NodeId] | None,
        url: str,
    ) -> None:
        super().__init__(host, options, listener, nearby, url)
        self.offers: dict[int, LinkOffer] = {}  # links that others may take, by their numbers
        self._search: TreeSearch | None = None
        self._attempts = 0  # requests since the upstream was lost
        self._has_asked_around = False  # by the one-hop request that precedes those in a crowd (R13)
        self._yielded_to: RequestKey | None = None  # whose activation we wait for, as the root of our tree
        # Replies to requests before this number are dropped (R9). None: all replies are.
        self._welcome_from: int | None = None
        self._hellos = 0
        self._hello_interval: Micros = self._parameters().hello_interval  # as our leader states it
        self._silences = 0
        self._sighted_at: Micros = -SIGHTING_INTERVAL  # when another tree was last in range

    def on_start(self) -> None:
        self._set_leader(True)
        self._set_timer("hello", self._some_of(self._parameters().hello_interval))

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """Beyond the work: a leader asks at once, not only every RECONNECTION_TRIGGER hellos."""
        if self._options.additions and self.is_leader and self._search is None:
            self._set_timer("merge", self._some_of(MERGE_DELAY))

    # Group hellos.

    def _on_hello_due(self) -> None:
        if not self.is_leader:
            return
        parameters = self._parameters()
        self._set_timer("hello", parameters.hello_interval)
        self._hello_interval = parameters.hello_interval
        if self.links:
            # Only with links: a leader without any has no receivers, and must not look fresher than a tree.
            self.label = Label(self.label.sequence + 1, self._host.node, 0)
            self._say_hello(update=False)
        self._hellos += 1
        if self._hellos % parameters.reconnection_trigger == 0 and self._search is None:
            # Delayed at random, so that it collides neither with the hello nor with other leaders.
            self._set_timer("merge", self._some_of(MERGE_DELAY))

    def _say_hello(self, *, update: bool, relayed: bool = False) -> None:
        below = [link for peer, link in sorted(self.links.items()) if peer != self.parent]
        if not below:
            return
        named = tuple((link.peer, link.number) for link in below[:LINKS_MAX])
        message = GroupHello(self._standing(), self._hello_interval, update, named)
        if relayed:
            self._courier.broadcast_soon(message, own=False)
        else:
            self._courier.broadcast(message, own=True)

    def _on_hello(self, sender: NodeId, message: GroupHello) -> None:
        link = self.links.get(sender)
        named = next((number for node, number in message.links if node == self._host.node), None)
        if named is None:
            if link is not None and sender == self.parent and link.state is LinkState.OPEN:
                self._probe(link)  # R7: our upstream does not know the link, or this hello is old
            elif message.standing.leader != self.label.leader and self.is_nearby(sender):
                self._on_sighting()
            return
        if link is None or link.number != named:
            self._refuse(sender, message, named)
            return
        if sender != self.parent:
            self._drop(message, "is no hello of our upstream")
            return
        self._on_heard(sender, named)
        self._courier.agreed(sender, named)
        fresher = message.standing.sequence > self.label.sequence
        if fresher or message.update:
            self._hello_interval = message.interval
            self._silences = 0
            self._expect_hello()
        if self._better(message.standing.label.moved(RANKS_PER_HOP), message.standing.hops + 1):
            self._say_hello(update=message.update, relayed=True)

    def _expect_hello(self) -> None:
        missed = self._parameters().allowed_hello_loss + 1
        self._set_timer("silence", self._hello_interval * missed + self._hello_interval // 2)

    def _on_silence(self) -> None:
        """Section 4.3: no group hello came. If the upstream answers a probe, a node above it has to act."""
        if self.parent is None:
            return
        self._silences += 1
        if self._silences >= SILENCES_MAX:
            self._lose(self.parent, tell=True)
        else:
            self._expect_hello()
            self._probe(self.links[self.parent])

    def _on_sighting(self) -> None:
        """R14: another tree is in range of this one. The leader, who may be far away, is told to look for it
        now; in the work it looks every RECONNECTION_TRIGGER hellos."""
        now = self._host.now()
        if not self._options.additions or now - self._sighted_at < SIGHTING_INTERVAL:
            return
        self._sighted_at = now
        if self.is_leader and self._search is None:
            self._set_timer("merge", self._some_of(MERGE_DELAY))
        elif self.parent is not None:
            self._courier.once(self.parent, Sighting(self.links[self.parent].number), own=False)

    # The root.

    def _declare_leader(self) -> None:
        """There is no path into another tree: lead this one. A root may improve its label without limit (R2).

        A node that has no links and withdraws its offers is bound by no label that it stated: it starts over
        like one that has just booted, so that it does not outrank the tree that it comes back to.
        """
        assert self.parent is None
        self._stop_searching()
        self._yielded_to = None
        self._broken_at = None
        if self.links:
            self.label = Label(self.label.sequence + 1, self._host.node, 0)
        else:
            self.offers.clear()
            self.label = Label(0, self._host.node, 0)
        self.hops = 0
        self._set_leader(True)
        self._hellos = 0
        self._hello_interval = self._parameters().hello_interval
        self._cancel_timer("silence")
        self._set_timer("hello", self._hello_interval)
        self._set_timer("merge", self._some_of(MERGE_DELAY))
        self._say_hello(update=True)

    def _stop_searching(self) -> None:
        self._search = None
        self._cancel_timer("search")
        self._cancel_timer("merge")

    def _leave_root(self) -> None:
        """We are about to have an upstream."""
        self._stop_searching()
        self._welcome_from = None
        self._set_leader(False)
        self._yielded_to = None

    def _forget_attempts(self) -> None:
        self._attempts = 0
        self._has_asked_around = False

    def _better(self, label: Label, hops: int) -> bool:
        """Take a label if it is better than ours: labels never get worse (R2)."""
        if not label.better_than(self.label):
            return False
        self.label = label
        self.hops = min(hops, HOPS_MAX)
        return True
