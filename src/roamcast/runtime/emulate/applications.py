"""The scenario's workload through the public client: what applications on the devices would do.

One application per node. It subscribes and publishes at the scenario's times and writes down what it gets,
as the application of a simulated node does. When its node is killed its client waits for the restart and
subscribes again; the application still wants what it wanted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path

from roamcast.broker.core import Delivery, Subscription
from roamcast.broker.judgement import is_right
from roamcast.client import Client, ClientError, ClientSubscription, Message, connect
from roamcast.event import EventId
from roamcast.node import published_record
from roamcast.runtime.emulate.real_time import Clock
from roamcast.runtime.emulate.stage import PartJournal
from roamcast.scenario.model import Scenario
from roamcast.scenario.workload import (
    AdvertisementPlan,
    PublicationPlan,
    SubscriptionPlan,
    advertisements,
    publications,
    subscriptions,
)
from roamcast.trace import Delivered, Subscribed
from roamcast.units import SECOND, Micros, NodeId

NAME = "workload"
# Chosen by us. A busy machine may need many seconds for a start; only a failed run waits for the time-out.
START_TIMEOUT = 60.0  # seconds until a node that was started must answer
RETRY = 0.05  # seconds between two attempts to subscribe; adds to `restart_delay` at most this
TOLD_APART = 10_000  # events whose copies for several subscriptions are recognised; bounds the memory


class NodeApplication:
    """The application of one node. `clock` counts from time zero."""

    def __init__(self, node: NodeId, socket: Path, journal: PartJournal, clock: Clock) -> None:
        self._node = node
        self._socket = socket
        self._journal = journal
        self._clock = clock
        # By the scenario's number, whether the node is up or down.
        self._wanted: dict[int, Subscription] = {}
        self._client: Client | None = None
        self._connection = AsyncExitStack()
        self._is_up = False
        self._open: dict[int, ClientSubscription] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._came_for: dict[EventId, int | None] = {}  # the subscription that got it first
        self.publish_delays: list[Micros] = []

    async def connect(self, wait: float = START_TIMEOUT) -> None:
        """Wait until the node answers for the first time; TimeoutError if it does not."""
        async with asyncio.timeout(wait):
            client = connect(self._socket, name=NAME, addressed=True, reconnect=True)
            self._client = await self._connection.enter_async_context(client)
        self._is_up = True
        self._read(self._client.addressed)

    def on_killed(self) -> None:
        """The device is down. The client waits for its node by itself."""
        self._is_up = False

    async def on_restarted(self, wait: float = START_TIMEOUT) -> None:
        """Wait until the client has its node again; then make the subscriptions of the time in between."""
        client = self._client
        assert client is not None
        async with asyncio.timeout(wait):
            while client.lost.done():
                await asyncio.sleep(RETRY)
            for number in sorted(self._wanted.keys() - self._open.keys()):
                while number in self._wanted and not await self._subscribe(number):
                    await asyncio.sleep(RETRY)
        self._is_up = True

    async def close(self) -> None:
        """The run has ended: write down how many events were missed, and disconnect."""
        for reader in list(self._readers):
            reader.cancel()
        if self._client is not None:
            missed = [subscription.missed for subscription in self._open.values()]
            self._journal.write("missed", self._node, self._client.missed + sum(missed))
        await self._connection.aclose()

    async def subscribe(self, plan: SubscriptionPlan) -> None:
        wanted = Subscription(plan.subscription, plan.filter, modulator=plan.modulator)
        self._wanted[plan.subscription] = wanted
        self._journal.record(Subscribed(self._clock(), self._node, plan.subscription, str(plan.filter), True))
        if self._is_up:  # otherwise the subscription waits for the restart; see `on_restarted`
            await self._subscribe(plan.subscription)

    async def unsubscribe(self, plan: SubscriptionPlan) -> None:
        del self._wanted[plan.subscription]
        self._journal.record(Subscribed(self._clock(), self._node, plan.subscription, "", False))
        subscription = self._open.pop(plan.subscription, None)
        if subscription is not None:
            with suppress(ClientError):
                await subscription.close()

    async def advertise(self, plan: AdvertisementPlan) -> None:
        """The client advertises again by itself after a restart of its node."""
        await self._say("advertisement", plan, lambda client: client.advertise(plan.type))

    async def withdraw(self, plan: AdvertisementPlan) -> None:
        await self._say("withdrawal", plan, lambda client: client.withdraw(plan.type))

    async def publish(self, plan: PublicationPlan) -> None:
        """A device that is down publishes nothing. What the node did not take is written down too."""
        asked = self._clock()
        self.publish_delays.append(max(asked - plan.time, 0))
        if self._client is None or not self._is_up:
            return
        try:
            event = await self._client.send(plan.publication)
        except ClientError as error:
            self._journal.write("refused", asked, self._node, f"publication: {error}")
            return
        self._journal.record(published_record(asked, plan.publication.numbered(*event)))

    # Private.

    async def _say(
        self, what: str, plan: AdvertisementPlan, say: Callable[[Client], Awaitable[None]]
    ) -> None:
        if self._client is None or not self._is_up:
            return
        try:
            await say(self._client)
        except ClientError as error:
            self._journal.write("refused", self._clock(), self._node, f"{what} of {plan.type}: {error}")

    async def _subscribe(self, number: int) -> bool:
        """False if the node did not take it."""
        if self._client is None:
            return False
        try:
            wanted = self._wanted[number]
            subscription = await self._client.open_subscription(wanted.filter, modulator=wanted.modulator)
        except ClientError as error:
            self._journal.write("refused", self._clock(), self._node, f"subscription: {error}")
            return False
        self._open[number] = subscription
        self._read(subscription, wanted)
        return True

    def _read(self, messages: ClientSubscription, wanted: Subscription | None = None) -> None:
        reader = asyncio.get_running_loop().create_task(self._take(messages, wanted))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _take(self, messages: ClientSubscription, wanted: Subscription | None) -> None:
        with suppress(ClientError):
            async for message in messages:
                self._on_message(message, wanted)

    def _on_message(self, message: Message, wanted: Subscription | None) -> None:
        """`wanted`: the subscription that it came for; None for an event with this node as destination."""
        event = message.event
        if event.publisher == self._node:
            return
        is_modulated = wanted is not None and wanted.modulator is not None
        if not is_modulated and self._has_come_for_another(event.id, wanted):
            return
        numbers = () if wanted is None else (wanted.number,)
        matched = is_right(Delivery(event, numbers, message.hops, is_modulated), self._node, self._wanted)
        self._journal.record(
            Delivered(self._clock(), self._node, event.publisher, event.sequence, message.hops, matched)
        )

    def _has_come_for_another(self, event: EventId, wanted: Subscription | None) -> bool:
        """The node delivers an event once per subscription. For an application that is one delivery, as in a
        simulation. Outputs of modulators differ from each other, so they are not compared here."""
        number = None if wanted is None else wanted.number
        if event in self._came_for:
            return self._came_for[event] != number
        if len(self._came_for) >= TOLD_APART:
            del self._came_for[next(iter(self._came_for))]
        self._came_for[event] = number
        return False


Action = tuple[Micros, Callable[[], Awaitable[None]]]


async def play(scenario: Scenario, applications: list[NodeApplication], clock: Clock) -> None:
    """The whole workload, each action at its time, until the scenario ends; open requests are cancelled."""
    acting: list[asyncio.Future[None]] = []
    try:
        for moment, act in actions(scenario, applications):
            await asyncio.sleep(max((moment - clock()) / SECOND, 0))
            # Concurrently: a node that is slow to answer does not delay the events of others.
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
    for announced in advertisements(scenario):
        application = applications[announced.node]
        planned.append((announced.since, partial(application.advertise, announced)))
        if announced.until is not None:
            planned.append((announced.until, partial(application.withdraw, announced)))
    planned += [
        (event.time, partial(applications[event.node].publish, event)) for event in publications(scenario)
    ]
    return sorted(planned, key=itemgetter(0))
