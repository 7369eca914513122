"""The table of sessions: connected clients, absent ones that may come back, and wills.

    CONNECT ─▶ attached ──connection ends──▶ absent ──expiry──▶ ended
                  ▲                             │
                  └────────── CONNECT ──────────┘      (clean start: ended, then a new one)

A will is published when its delay is over, or when the session ends, whichever is first (MQTT 5.0, section
3.1.2.5); a client that comes back in time cancels it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from roamcast.gateway.mqtt.mesh.exchange import MeshExchange
from roamcast.gateway.mqtt.packets.values import Will
from roamcast.gateway.mqtt.sessions.durable import SETTLE, KeptSession, Notes, remaining
from roamcast.gateway.mqtt.sessions.incoming import IncomingMessages
from roamcast.gateway.mqtt.sessions.session import ClientLink, MqttSession, OwedEvents
from roamcast.gateway.options import MqttOptions
from roamcast.units import SECOND, Micros, micros, seconds

NEVER = 0xFFFF_FFFF  # a session expiry that means: as long as possible


class Sessions:
    def __init__(
        self,
        exchange: MeshExchange,
        notes: Notes,
        incoming: IncomingMessages,
        options: MqttOptions,
        clock: Callable[[], Micros],
    ) -> None:
        self._exchange = exchange
        self._notes = notes
        self._incoming = incoming
        self._options = options
        self._clock = clock
        self._expiry_max = micros(options.session_expiry_max)
        self._sessions: dict[str, MqttSession] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of absent ones
        self._settle_timer: asyncio.TimerHandle | None = None
        self.chores = Chores(clock)
        self.owed = OwedEvents(clock)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[MqttSession]:
        return iter(list(self._sessions.values()))

    def find(self, client_id: str) -> MqttSession | None:
        return self._sessions.get(client_id)

    # A client comes.

    def attach(
        self,
        link: ClientLink,
        client_id: str,
        username: str | None,
        will: Will | None = None,
        *,
        clean: bool,
        expiry: Micros,
    ) -> tuple[MqttSession, bool] | None:
        """The client's session and whether it stood before; None if there is no room for one more.

        The caller has disconnected (`detach`) any other connection under this name.
        """
        session = self._sessions.get(client_id)
        if session is not None and (clean or self._is_over(session)):
            self._end(session)
            session = None
        stood_before = session is not None
        if session is None:
            if len(self._sessions) >= self._options.sessions_max and not self._make_room():
                return None
            session = self._new(client_id)
        self._cancel(client_id)
        session.link = link
        session.username = username
        session.expires_at = None
        session.will, session.will_due = will, None
        self.set_expiry(session, expiry)
        return session, stood_before

    def set_expiry(self, session: MqttSession, expiry: Micros) -> None:
        """Set how long the session outlives its connection, as CONNECT or DISCONNECT says."""
        was_durable = session.is_durable
        session.expiry = min(expiry, self._expiry_max)
        if session.is_durable:
            self._notes.save(session)
            self._settle_later()
        elif was_durable:
            self._forget(session)

    def changed(self, session: MqttSession) -> None:
        """Its subscriptions changed, or anything else that is stored."""
        self._notes.save(session)

    # A client goes.

    def detach(self, session: MqttSession, *, with_will: bool) -> None:
        """The connection has ended."""
        session.link = None
        now = self._clock()
        will = session.will
        if not with_will or will is None:
            session.will = None
        else:
            session.will_due = now + _delay(will)
        if not session.is_durable:
            self._end(session)
            return
        session.expires_at = now + session.expiry
        self._act(session)

    def close(self) -> None:
        """The listener stops. Wills of connected clients are published, because the mesh loses them."""
        self.chores.finish()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        for session in list(self._sessions.values()):
            self._cancel(session.client_id)
            if session.is_durable:
                self._notes.save(session)

    # After a restart.

    def restore(self, wall_now: Micros) -> None:
        """Restore the kept sessions with their subscriptions, and queue the events that they missed."""
        restored: list[MqttSession] = []
        for client_id, kept in self._notes.kept_sessions():
            session = self._new(client_id)
            self._fill(session, kept, wall_now)
            session.last_packet_id = self._notes.any_packet_id()
            restored.append(session)
        for session in restored:
            had = self._notes.delivered(session.client_id)
            for outgoing in self._notes.kept_messages(session.client_id):
                session.restore(outgoing)
                if outgoing.message.memorized is not None:
                    had.add(outgoing.message.memorized[0])
            self._exchange.show_missed(session, had)
            session.had = had
        self._incoming.restore((None, *restored))
        for session in restored:  # after all queues stand: this publishes
            self._act(session)
        self._incoming.publish_unpublished()

    def _fill(self, session: MqttSession, kept: KeptSession, wall_now: Micros) -> None:
        now = self._clock()
        session.username = kept.username
        session.expiry = kept.expiry
        session.expires_at = now + remaining(kept.expires_at, wall_now, kept.expiry)
        session.received = dict.fromkeys(kept.received, 0)
        session.will = kept.will
        if kept.will is not None:
            # A client that was connected when the node died is disconnected now.
            delay = _delay(kept.will)
            if kept.will_due is not None:
                delay = remaining(kept.will_due, wall_now, delay)
            session.will_due = now + delay
        for packet_id in kept.released:
            session.restore_released(packet_id)
        for request, identifier in kept.subscriptions:
            self._exchange.subscribe(session, request, identifier)

    # Private.

    def _new(self, client_id: str) -> MqttSession:
        session = MqttSession(
            client_id,
            self._notes,
            self._clock,
            self.owed,
            queue_messages_max=self._options.queue_messages_max,
            queue_bytes_max=self._options.queue_bytes_max,
        )
        self._sessions[client_id] = session
        return session

    def _is_over(self, session: MqttSession) -> bool:
        return session.expires_at is not None and session.expires_at <= self._clock()

    def _act(self, session: MqttSession) -> None:
        """For an absent session: do what is due, and set a timer for the rest."""
        self._cancel(session.client_id)
        if session.link is not None or self._sessions.get(session.client_id) is not session:
            return
        if self._is_over(session):
            self._end(session)
            return
        now = self._clock()
        if session.will_due is not None and session.will_due <= now:
            self._publish_will(session)
        self._notes.save(session)
        due = [at for at in (session.expires_at, session.will_due) if at is not None]
        if due:
            self._timers[session.client_id] = asyncio.get_running_loop().call_later(
                seconds(max(0, min(due) - now)), self._act, session
            )

    def _end(self, session: MqttSession) -> None:
        self._cancel(session.client_id)
        self._publish_will(session)
        session.end()
        self.chores.add(self._exchange.interests.remove_all(session))
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
        self._forget(session)

    def _forget(self, session: MqttSession) -> None:
        self._incoming.outlive(session)
        self._notes.end(session)

    def _publish_will(self, session: MqttSession) -> None:
        will, due = session.will, session.will_due
        session.will = session.will_due = None
        if will is not None and due is not None:
            self._incoming.publish_will(will)

    def _make_room(self) -> bool:
        """The absent session that would end first ends now."""
        absent = [session for session in self._sessions.values() if session.expires_at is not None]
        if not absent:
            return False
        self._notes.on_evicted()
        self._end(min(absent, key=lambda session: session.expires_at or 0))
        return True

    def _cancel(self, client_id: str) -> None:
        timer = self._timers.pop(client_id, None)
        if timer is not None:
            timer.cancel()

    def _settle_later(self) -> None:
        if self._settle_timer is None and self._notes.is_kept:
            loop = asyncio.get_running_loop()
            self._settle_timer = loop.call_later(seconds(SETTLE), self._settle)

    def _settle(self) -> None:
        self._settle_timer = None
        older_than = self._clock() - SETTLE
        for session in self._sessions.values():
            if session.link is not None:
                self._notes.settle(session, older_than)
                session.pump()  # what the store had no room for may be there by now
        if any(session.link is not None and session.is_durable for session in self._sessions.values()):
            self._settle_later()


def _delay(will: Will) -> Micros:
    return 0 if will.properties is None else (will.properties.will_delay or 0) * SECOND


def session_expiry(asked: int | None, *, is_v5: bool, clean: bool) -> Micros:
    """What CONNECT asks for, before our own bound. In 3.1.1 a session lasts for ever or as its connection."""
    if not is_v5:
        return 0 if clean else NEVER * SECOND
    return (asked or 0) * SECOND


SLICE: Micros = 4_000  # of one turn, at least one step; chosen by us


class Chores:
    """Long work in slices, so that nobody waits for it: thousands of subscriptions that come, or end, at
    once.

    All chores of a listener share one slice in each turn of the loop, first come, first served.
    """

    def __init__(self, clock: Callable[[], Micros]) -> None:
        self._clock = clock
        self._waiting: deque[Iterator[None]] = deque()
        self._next: asyncio.Handle | None = None

    def add(self, steps: Iterator[None]) -> None:
        """Do some of it now if nothing else waits, and the rest later."""
        self._waiting.append(steps)
        if self._next is None:
            self._work()

    def finish(self) -> None:
        """Do all of it now."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting:
            for _ in self._waiting.popleft():
                pass

    def _work(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._work)  # first: a step may add a chore
        until = self._clock() + SLICE
        while self._waiting:
            for _ in self._waiting[0]:
                if self._clock() >= until:
                    return
            self._waiting.popleft()
        self._next.cancel()
        self._next = None
