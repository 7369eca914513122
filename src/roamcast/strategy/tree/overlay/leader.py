"""What a root does: lead, say so, look for other trees, or wait for the tree it has yielded to.

The group hellos (GRPH) of sections 4.3 and 5.4, and the election of a leader (4.3, 4.4).
"""

from typing import TYPE_CHECKING

from roamcast.kit.protocol import Timer
from roamcast.strategy.tree.overlay.messages import LINKS_MAX, RANKS_PER_HOP, GroupHello, Label, Sighting
from roamcast.strategy.tree.overlay.multicast_table import LinkState
from roamcast.units import SECOND, Micros, NodeId

if TYPE_CHECKING:  # it imports this module
    from roamcast.strategy.tree.overlay.evolved import Evolved

# Chosen by us: fewer messages for a slower reaction.
SIGHTING_INTERVAL: Micros = 2 * SECOND  # at least, between two searches because of another tree in range
SILENCES_MAX = 3  # missing hellos in a row before an upstream is left that still answers probes


class GroupLeader:
    """Group hellos, sent or awaited, and the election."""

    def __init__(self, tree: "Evolved") -> None:
        self._tree = tree
        self._table = tree.table
        self._hellos = 0
        self._hello_interval: Micros = tree.table.parameters().hello_interval  # as our leader states it
        self._silences = 0
        self._sighted_at: Micros = -SIGHTING_INTERVAL  # when another tree was last in range
        self._hello_timer = Timer(tree.host, self._on_hello_due)
        self._silence_timer = Timer(tree.host, self._on_silence)

    def start(self) -> None:
        self._table.set_leader(True)
        self._hello_timer.within(self._table.parameters().hello_interval)

    # Group hellos.

    def send_grph(self, *, update: bool, relayed: bool = False) -> None:
        table = self._table
        below = [link for peer, link in sorted(table.links.items()) if peer != table.parent]
        if not below:
            return
        named = tuple((link.peer, link.number) for link in below[:LINKS_MAX])
        message = GroupHello(table.standing(), self._hello_interval, update, named)
        if relayed:
            self._tree.courier.broadcast_soon(message)
        else:
            self._tree.messenger.send(message)

    def receive_grph(self, sender: NodeId, message: GroupHello) -> None:
        table = self._table
        link = table.links.get(sender)
        named = next((number for node, number in message.links if node == self._tree.node), None)
        if named is None:
            if link is not None and sender == table.parent and link.state is LinkState.OPEN:
                table.probe(link)  # R7: our upstream does not know the link, or this hello is old
            elif message.standing.leader != table.label.leader and self._tree.is_nearby(sender):
                self._on_sighting()
        elif link is None or link.number != named:
            table.refuse(sender, message, named)
        elif sender != table.parent:
            table.drop(message, "is no hello of our upstream")
        else:
            self._follow(sender, message, named)

    def _follow(self, upstream: NodeId, message: GroupHello, link: int) -> None:
        self._tree.on_used(upstream, link)
        self._tree.courier.agreed(upstream, link)
        if message.standing.sequence > self._table.label.sequence or message.update:
            self._hello_interval = message.interval
            self.await_grph()
        if self._table.improve(message.standing.label.moved(RANKS_PER_HOP), message.standing.hops + 1):
            self.send_grph(update=message.update, relayed=True)

    def await_grph(self) -> None:
        """There is an upstream, and none of its hellos is missing."""
        self._silences = 0
        self._await_next()

    def await_none(self) -> None:
        """There is no upstream."""
        self._silence_timer.cancel()

    def _await_next(self) -> None:
        missed = self._table.parameters().allowed_hello_loss + 1
        self._silence_timer.after(self._hello_interval * missed + self._hello_interval // 2)

    def _on_hello_due(self) -> None:
        table = self._table
        if not table.is_leader:
            return
        parameters = table.parameters()
        self._hello_timer.after(parameters.hello_interval)
        self._hello_interval = parameters.hello_interval
        if table.links:
            # Only with links: a leader without any has no receivers, and must not look fresher than a tree.
            table.label = Label(table.label.sequence + 1, self._tree.node, 0)
            self.send_grph(update=False)
        self._hellos += 1
        if self._hellos % parameters.reconnection_trigger == 0:
            self._tree.search.reconnect_soon()

    def _on_silence(self) -> None:
        """Section 4.3: no group hello came. If the upstream answers a probe, a node above it has to act."""
        upstream = self._table.parent
        if upstream is None:
            return
        self._silences += 1
        if self._silences >= SILENCES_MAX:
            self._tree.lose(upstream, tell=True)
        else:
            self._await_next()
            self._table.probe(self._table.links[upstream])

    # Other trees.

    def on_sighting(self, sender: NodeId, _: Sighting) -> None:
        if sender in self._table.links and sender != self._table.parent:
            self._on_sighting()

    def _on_sighting(self) -> None:
        """R14: another tree is in range of this one. The leader, who may be far away, is told to look for it
        now; in the work it looks every RECONNECTION_TRIGGER hellos."""
        table = self._table
        now = self._tree.host.now()
        if not self._tree.options.additions or now - self._sighted_at < SIGHTING_INTERVAL:
            return
        self._sighted_at = now
        if table.is_leader:
            self._tree.search.reconnect_soon()
        elif table.parent is not None:
            self._tree.messenger.send(Sighting(table.links[table.parent].number), table.parent, own=False)

    # The election.

    def elect(self) -> None:
        """There is no path into another tree: lead this one. A root may improve its label without limit (R2).

        A node that has no links and withdraws its offers is bound by no label that it stated: it starts over
        like one that has just booted, so that it does not outrank the tree that it comes back to.
        """
        table = self._table
        assert table.parent is None
        self._tree.search.stop()
        if not self._tree.is_member:
            self._tree.give_root_away()
            return
        table.broken_at = None
        if table.links:
            table.label = Label(table.label.sequence + 1, self._tree.node, 0)
        else:
            self._tree.offers.clear()
            table.label = Label(0, self._tree.node, 0)
        table.hops = 0
        table.set_leader(True)
        self._hellos = 0
        self._hello_interval = table.parameters().hello_interval
        self.await_none()
        self._hello_timer.after(self._hello_interval)
        self._tree.search.reconnect_soon()
        self.send_grph(update=True)

    def step_down(self) -> None:
        """We are about to have an upstream, or wait for one."""
        self._tree.search.close()
        self._table.set_leader(False)
