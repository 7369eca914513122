"""The scenario's workload through the public client: what applications on the devices would do.

One application per node. It subscribes and publishes at the scenario's times and writes down what it gets,
as the application of a simulated node does. When its node is killed its client waits for the restart and
subscribes again; the application still wants what it wanted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path

import msgspec

from roamcast.client import Client, ClientError, ClientSubscription, Message, connect
from roamcast.event import EventClass
from roamcast.filter import Filter
from roamcast.runtime.emulate.journal import PartJournal
from roamcast.runtime.emulate.real_time import Clock
from roamcast.scenario.model import Scenario
from roamcast.scenario.workload import PublicationPlan, SubscriptionPlan, publications, subscriptions
from roamcast.trace import Delivered, Published, Subscribed
from roamcast.units import SECOND, Micros, NodeId, seconds

NAME = "workload"
PATIENCE = 60.0  # seconds until a node that was started must answer
RETRY = 0.05  # seconds
TOLD_APART = 10_000  # messages whose copies for several subscriptions are recognised


class NodeApplication:
    """The application of one node. `clock` counts from time zero."""

    def __init__(self, node: NodeId, socket: Path, journal: PartJournal, clock: Clock) -> None:
        self._node = node
        self._socket = socket
        self._journal = journal
        self._clock = clock
        self._filters: dict[int, Filter] = {}  # by the scenario's number, whether the node is up or down
        self._client: Client | None = None
        self._connection = AsyncExitStack()
        self._is_up = False
        self._open: dict[int, ClientSubscription] = {}
        self._readers: set[asyncio.Task[None]] = set()
        # One delivery that several subscriptions share reaches each of them as the same object.
        self._told_apart: deque[Message] = deque(maxlen=TOLD_APART)
        self.publish_delays: list[Micros] = []

    async def connect(self, patience: float = PATIENCE) -> None:
        """Wait until the node answers for the first time; TimeoutError if it does not."""
        async with asyncio.timeout(patience):
            client = connect(self._socket, name=NAME, addressed=True, reconnect=True)
            self._client = await self._connection.enter_async_context(client)
        self._is_up = True
        self._read(self._client.addressed)

    def on_killed(self) -> None:
        """The device is down. The client waits for its node by itself."""
        self._is_up = False

    async def on_restarted(self, patience: float = PATIENCE) -> None:
        """Wait until the client has its node again; what was wished for meanwhile is asked for now."""
        client = self._client
        assert client is not None
        async with asyncio.timeout(patience):
            while client.lost.done():
                await asyncio.sleep(RETRY)
            for number in sorted(self._filters.keys() - self._open.keys()):
                while number in self._filters and not await self._subscribe(number):
                    await asyncio.sleep(RETRY)
        self._is_up = True

    async def close(self) -> None:
        """The run has ended: write down what was read too slowly, and leave."""
        for reader in list(self._readers):
            reader.cancel()
        if self._client is not None:
            missed = [subscription.missed for subscription in self._open.values()]
            self._journal.write("missed", self._node, self._client.missed + sum(missed))
        await self._connection.aclose()

    async def subscribe(self, plan: SubscriptionPlan) -> None:
        self._filters[plan.subscription] = plan.filter
        self._journal.record(Subscribed(self._clock(), self._node, plan.subscription, str(plan.filter), True))
        if self._is_up:  # else the user's wish stands although the device is down; see `on_restarted`
            await self._subscribe(plan.subscription)

    async def unsubscribe(self, plan: SubscriptionPlan) -> None:
        del self._filters[plan.subscription]
        self._journal.record(Subscribed(self._clock(), self._node, plan.subscription, "", False))
        subscription = self._open.pop(plan.subscription, None)
        if subscription is not None:
            with suppress(ClientError):
                await subscription.close()

    async def publish(self, plan: PublicationPlan) -> None:
        """A device that is down publishes nothing. What the node did not acknowledge is written down too."""
        asked = self._clock()
        self.publish_delays.append(max(asked - plan.time, 0))
        if self._client is None or not self._is_up:
            return
        lifetime = seconds(plan.lifetime) if plan.event_class is EventClass.MEMORIZED else None
        try:
            event = await self._client.publish(
                topic=plan.topic,
                attributes=plan.attributes,
                payload=bytes(plan.size),
                type=plan.type,
                lifetime=lifetime,
                to=plan.destinations,
                multimode=plan.multimode,
            )
        except ClientError as error:
            self._journal.write("refused", asked, self._node, f"publication: {error}")
            return
        self._journal.record(
            Published(
                asked,
                self._node,
                event.sequence,
                plan.event_class.value,
                plan.lifetime,
                plan.size,
                plan.topic,
                plan.type,
                msgspec.json.encode(plan.attributes).decode(),
                plan.destinations,
                plan.multimode,
            )
        )

    # Private.

    async def _subscribe(self, number: int) -> bool:
        """False if the node did not take it."""
        if self._client is None:
            return False
        try:
            subscription = await self._client.open_subscription(self._filters[number])
        except ClientError as error:
            self._journal.write("refused", self._clock(), self._node, f"subscription: {error}")
            return False
        self._open[number] = subscription
        self._read(subscription)
        return True

    def _read(self, subscription: ClientSubscription) -> None:
        reader = asyncio.get_running_loop().create_task(self._take(subscription))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _take(self, subscription: ClientSubscription) -> None:
        with suppress(ClientError):
            async for message in subscription:
                self._on_message(message)

    def _on_message(self, message: Message) -> None:
        event = message.event
        if event.publisher == self._node or any(message is earlier for earlier in self._recent()):
            return
        self._told_apart.append(message)
        # Tried one by one, not by the broker's index: this is the check on the broker.
        matched = self._node in event.destinations or (
            event.wants_subscribers and any(wanted.matches(event) for wanted in self._filters.values())
        )
        self._journal.record(
            Delivered(self._clock(), self._node, event.publisher, event.sequence, message.hops, matched)
        )

    def _recent(self) -> deque[Message]:
        return self._told_apart if len(self._open) > 1 else deque()


Action = tuple[Micros, Callable[[], Awaitable[None]]]


async def play(scenario: Scenario, applications: list[NodeApplication], clock: Clock) -> None:
    """The whole workload, each action at its time, until the scenario ends. Unanswered requests stay so."""
    acting: list[asyncio.Future[None]] = []
    try:
        for moment, act in actions(scenario, applications):
            await asyncio.sleep(max((moment - clock()) / SECOND, 0))
            # Not one after the other: a node that is slow to answer delays no other's events.
            acting.append(asyncio.ensure_future(act()))
        await asyncio.sleep(max((scenario.duration - clock()) / SECOND, 0))
    finally:
        for action in acting:
            action.cancel()
        ended = await asyncio.gather(*acting, return_exceptions=True)
    for fault in ended:
        if isinstance(fault, Exception):
            raise fault


def actions(scenario: Scenario, applications: list[NodeApplication]) -> list[Action]:
    """By time; at one instant those that subscribe or unsubscribe come first, as in a simulation."""
    planned: list[Action] = []
    for wanted in subscriptions(scenario):
        application = applications[wanted.node]
        planned.append((wanted.since, partial(application.subscribe, wanted)))
        if wanted.until is not None:
            planned.append((wanted.until, partial(application.unsubscribe, wanted)))
    planned += [
        (event.time, partial(applications[event.node].publish, event)) for event in publications(scenario)
    ]
    return sorted(planned, key=itemgetter(0))
