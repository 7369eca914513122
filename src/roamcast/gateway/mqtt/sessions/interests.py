"""Who on this node wants what: clients' subscriptions, and the fewer subscriptions made in the mesh.

Clients with the same filter share one subscription of the mesh, so a hundred clients that want `alarm/#`
cost the radio as much as one. An event arrives with the numbers of the mesh's subscriptions that it
matched; `plan` turns those into clients, each once, with the highest QoS of its overlapping subscriptions
and all their identifiers (MQTT 5.0, section 3.3.4). Plans are kept until a subscription changes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from roamcast.applications import ApplicationSession
from roamcast.filter import Filter
from roamcast.gateway.mqtt.mesh.content import ClientFilter
from roamcast.gateway.mqtt.packets.values import SubscriptionRequest
from roamcast.gateway.mqtt.sessions.session import MqttSession, TopicSubscription

PLANS_MAX = 4_096  # cached; chosen by us


class Target(NamedTuple):
    """One client that gets a message. `own` is used for messages that the client published itself: it leaves
    out subscriptions with no-local; None: the client gets nothing."""

    session: MqttSession
    qos: int
    identifiers: tuple[int, ...]
    retain_as_published: bool
    own: "Target | None"


class ShareGroup:
    """A shared subscription (section 4.8.2): each message goes to one member, in turn."""

    def __init__(self) -> None:
        self._members: dict[MqttSession, TopicSubscription] = {}

    def put(self, session: MqttSession, subscription: TopicSubscription) -> None:
        self._members[session] = subscription

    def remove(self, session: MqttSession) -> None:
        self._members.pop(session, None)

    def __bool__(self) -> bool:
        return bool(self._members)

    def pick(self) -> Target | None:
        """The member whose turn it is: connected clients that read come first, then other connected clients,
        then absent clients with a session."""
        best: MqttSession | None = None
        for session in self._members:  # in the order of their last turn
            if best is None or session.readiness > best.readiness:
                best = session
        if best is None:
            return None
        subscription = self._members.pop(best)
        self._members[best] = subscription
        return _target(best, [subscription])


class Plan(NamedTuple):
    targets: tuple[Target, ...]
    groups: tuple[ShareGroup, ...]


class _MeshSubscription(msgspec.Struct, eq=False):
    number: int
    wanted: Filter
    members: dict[tuple[MqttSession, str], TopicSubscription] = {}
    groups: dict[tuple[str, str], ShareGroup] = {}  # by share name and client's text


class ClientInterests:
    def __init__(self, session: ApplicationSession) -> None:
        """`session`: of all clients, on the node."""
        self._session = session
        self._by_filter: dict[Filter, _MeshSubscription] = {}
        self._by_number: dict[int, _MeshSubscription] = {}
        self._plans: dict[tuple[int, ...], Plan] = {}

    def add(
        self, session: MqttSession, request: SubscriptionRequest, parsed: ClientFilter, identifier: int
    ) -> TopicSubscription:
        """Enter a client's subscription or replace the one with the same text."""
        subscription = TopicSubscription(request, parsed, identifier)
        shared = self._by_filter.get(parsed.wanted)
        if shared is None:
            shared = _MeshSubscription(self._session.reserve(), parsed.wanted)
            self._by_filter[parsed.wanted] = shared
            self._by_number[shared.number] = shared
            # Stored events that the mesh delivers now find no client yet; the listener delivers them later.
            self._session.subscribe_as(shared.number, parsed.wanted)
        if parsed.share:
            group = shared.groups.setdefault((parsed.share, request.filter), ShareGroup())
            group.put(session, subscription)
        else:
            shared.members[session, request.filter] = subscription
        session.subscriptions[request.filter] = subscription
        session.no_local.discard(request.filter)
        if request.no_local:
            session.no_local.add(request.filter)
        self._plans.clear()
        return subscription

    def remove(self, session: MqttSession, text: str) -> bool:
        """False if the client had no such subscription."""
        subscription = session.subscriptions.pop(text, None)
        if subscription is None:
            return False
        session.no_local.discard(text)
        parsed = subscription.parsed
        shared = self._by_filter[parsed.wanted]
        if parsed.share:
            key = (parsed.share, text)
            shared.groups[key].remove(session)
            if not shared.groups[key]:
                del shared.groups[key]
        else:
            shared.members.pop((session, text), None)
        self._plans.clear()
        if not shared.members and not shared.groups:
            del self._by_filter[parsed.wanted]
            del self._by_number[shared.number]
            self._session.unsubscribe(shared.number)
        return True

    def remove_all(self, session: MqttSession) -> Iterator[None]:
        """Step by step: until then an ended session may still get messages, and ignores them. Shared
        subscriptions end at once, because a message for it would not go to another."""
        shared_first = sorted(session.subscriptions, key=lambda text: not text.startswith("$share/"))
        for text in shared_first:
            self.remove(session, text)
            if not text.startswith("$share/"):
                yield

    def plan(self, numbers: tuple[int, ...]) -> Plan:
        """Who gets an event that matched these subscriptions of the mesh."""
        plan = self._plans.get(numbers)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[numbers] = self._make_plan(numbers)
        return plan

    def __len__(self) -> int:
        """The number of subscriptions in the mesh."""
        return len(self._by_number)

    def _make_plan(self, numbers: tuple[int, ...]) -> Plan:
        by_session: dict[MqttSession, list[TopicSubscription]] = {}
        groups: list[ShareGroup] = []
        for number in numbers:
            shared = self._by_number.get(number)
            if shared is None:
                continue
            for (session, _), subscription in shared.members.items():
                by_session.setdefault(session, []).append(subscription)
            groups += shared.groups.values()
        targets = tuple(_target(session, found) for session, found in by_session.items())
        return Plan(targets, tuple(groups))


def _target(session: MqttSession, subscriptions: list[TopicSubscription]) -> Target:
    others = [subscription for subscription in subscriptions if not subscription.request.no_local]
    whole = _merged(session, subscriptions, None)
    if len(others) == len(subscriptions):
        return whole._replace(own=whole)
    return whole._replace(own=_merged(session, others, None) if others else None)


def _merged(session: MqttSession, subscriptions: list[TopicSubscription], own: Target | None) -> Target:
    return Target(
        session,
        max(subscription.request.qos for subscription in subscriptions),
        tuple(found.identifier for found in subscriptions if found.identifier),
        any(subscription.request.retain_as_published for subscription in subscriptions),
        own,
    )
