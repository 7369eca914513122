"""Publications that want answers: requests want replies, and a publisher may want receipts.

An inquiry is open until it has answers enough, until its deadline, or until its owner closes it. Answers
are addressed to this node and carry the inquiry's token. One that fits no open inquiry is dropped and
counted: `late` if the inquiry was open not long ago, `unknown` if there was none, `unasked` if it
comes from a node whose receipt was not asked for, or a second time, `too_large` if it is more than one event.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from roamcast.broker.core import Delivery
from roamcast.errors import InputError
from roamcast.event import PAYLOAD_BYTES_MAX, Event, Publication, Value
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.units import SECOND, Micros, NodeId
from roamcast.wire.exchange import (
    CORRELATION,
    EXPIRY,
    FLAGS,
    NAMED_MAX,
    NODE_NAME,
    PLAIN_QOS,
    RECEIPT,
    RESPONSE_TOPIC,
    TOKEN_BITS,
    ReceiptWanted,
    ReplyAddress,
    correlation,
    encode_wanted,
    reply_address,
    reply_topic,
)


class ExchangeHost(Protocol):
    """What exchanges need of the node's runtime."""

    @property
    def number(self) -> NodeId: ...

    @property
    def name(self) -> str: ...

    def now(self) -> Micros:
        """The node's clock."""
        ...

    def later(self, delay: Micros, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` after this time, as an input of its own. What is returned cancels it."""
        ...

    def heard(self) -> int:
        """How many nodes are heard directly now."""
        ...


# Chosen by us.
DEADLINE_MAX: Micros = 86_400 * SECOND
ANSWERS_MAX = 1_000  # to one inquiry
OPEN_MAX = 10_000  # inquiries of one node
CLOSED_KEPT = 10_000  # tokens of inquiries that are over, to tell late answers from forged ones

OnAnswer: TypeAlias = Callable[[Delivery, Micros], None]
"""The answer, and the time since the inquiry began."""


class Question(NamedTuple):
    """What the owner of an inquiry wants to know."""

    within: Micros
    answers: int = ANSWERS_MAX  # so many are enough
    receipts: bool = False  # of the nodes that the event reaches; else replies of applications
    named: tuple[str, ...] = ()  # receipts of these nodes, by name or number, instead of so many of any

    def check(self) -> None:
        """`InputError` for what nobody can want."""
        if not 0 < self.within <= DEADLINE_MAX:
            most = DEADLINE_MAX // SECOND
            given = self.within / SECOND
            raise InputError("deadline", f"is {given:g} seconds; allowed: more than 0, at most {most}")
        if not 1 <= self.answers <= ANSWERS_MAX:
            what = "reached" if self.receipts else "answers"
            raise InputError(what, f"is {self.answers}; allowed: 1 to {ANSWERS_MAX}")
        if len(self.named) > NAMED_MAX:
            raise InputError("reached", f"names {len(self.named)} nodes; at most {NAMED_MAX} are allowed")


class Inquiry:
    """One that is open. `publication` is what is to be published for it; `close` ends it early."""

    def __init__(
        self,
        inquiries: "Inquiries",
        question: Question,
        address: ReplyAddress,
        publication: Publication,
        on_answer: OnAnswer,
        on_over: Callable[[], None],
    ) -> None:
        self._inquiries = inquiries
        self.question = question
        self.token = address.token
        prepare = _with_receipts if question.receipts else _with_replies
        self.publication = prepare(publication, question, address)
        self.on_answer = on_answer
        self.on_over = on_over
        self.cancel: Callable[[], None] = lambda: None  # what would happen at the deadline
        self.event: Event | None = None
        self.began = inquiries.now()
        self.answers = 0
        self.confirmed: set[NodeId] = set()
        self.named = set(question.named)  # those who have not confirmed yet

    def published(self, event: Event) -> None:
        self.event = event
        self.began = self._inquiries.now()

    def close(self) -> None:
        self._inquiries.close(self)


class Inquiries:
    def __init__(self, host: ExchangeHost, random: Random, on_dropped: Callable[[str], None]) -> None:
        self._host = host
        self._random = random
        self._on_dropped = on_dropped
        self._open: dict[int, Inquiry] = {}  # by token
        self._closed: BoundedDict[int, None] = BoundedDict(CLOSED_KEPT, unreported)

    def __len__(self) -> int:
        return len(self._open)

    def now(self) -> Micros:
        return self._host.now()

    def open(
        self, publication: Publication, question: Question, on_answer: OnAnswer, on_over: Callable[[], None]
    ) -> Inquiry:
        """`InputError` for a question that cannot be asked; then there is no inquiry."""
        question.check()
        if len(self._open) >= OPEN_MAX:
            raise InputError("request", f"is one too many; a node has at most {OPEN_MAX} open")
        if own := {self._host.name, str(self._host.number)} & set(question.named):
            raise InputError("reached", f"names {own.pop()}, this node itself; allowed: others")
        address = ReplyAddress(self._host.number, self._random.getrandbits(TOKEN_BITS))
        inquiry = Inquiry(self, question, address, publication, on_answer, on_over)
        inquiry.cancel = self._host.later(question.within, lambda: self._end(inquiry))
        self._open[address.token] = inquiry
        return inquiry

    def on_answer(self, delivery: Delivery) -> Inquiry | None:
        """From the mesh. Returns an inquiry that has answers enough by this one, and is over."""
        address = reply_address(delivery.event.topic)
        if address is None or address.node != self._host.number or address.token not in self._open:
            is_late = address is not None and address.token in self._closed
            self._on_dropped("late" if is_late else "unknown")
            return None
        if len(delivery.event.payload) > PAYLOAD_BYTES_MAX:
            self._on_dropped("too_large")
            return None
        inquiry = self._open[address.token]
        if inquiry.question.receipts and not _counts(inquiry, delivery.event):
            self._on_dropped("unasked")
            return None
        inquiry.answers += 1
        inquiry.on_answer(delivery, max(0, self.now() - inquiry.began))
        wanted = inquiry.question
        if inquiry.named if wanted.named else inquiry.answers < wanted.answers:
            return None
        self._end(inquiry)
        return inquiry

    def close(self, inquiry: Inquiry) -> None:
        """End the inquiry; its owner is not told."""
        if self._open.pop(inquiry.token, None) is not None:
            inquiry.cancel()
            self._closed[inquiry.token] = None

    def close_all(self) -> None:
        for inquiry in list(self._open.values()):
            self.close(inquiry)

    def _end(self, inquiry: Inquiry) -> None:
        self.close(inquiry)
        inquiry.on_over()


def enough(inquiry: Inquiry) -> Publication | None:
    """What tells the nodes that have not confirmed yet that they need not; None where nobody would.

    It has the topic, type and attributes of the publication, so it reaches the same nodes, whatever the
    strategy goes by. Subscriptions to its content (XPath) are the exception.
    """
    if inquiry.event is None or not inquiry.question.receipts or inquiry.question.named:
        return None
    return msgspec.structs.replace(
        inquiry.publication,
        attributes={**inquiry.publication.attributes, RECEIPT: inquiry.event.sequence},
        payload=b"",
        lifetime=0,
    )


def _with_replies(publication: Publication, question: Question, address: ReplyAddress) -> Publication:
    attributes: dict[str, Value] = {
        FLAGS: PLAIN_QOS,
        **publication.attributes,
        RESPONSE_TOPIC: reply_topic(address),
        CORRELATION: correlation(address.token),
        EXPIRY: -(-question.within // SECOND),
    }
    return msgspec.structs.replace(publication, attributes=attributes)


def _with_receipts(publication: Publication, question: Question, address: ReplyAddress) -> Publication:
    """Nodes that are named by number become destinations: subscribers there or not, the event goes there."""
    count = 0 if question.named else question.answers
    wanted = ReceiptWanted(address.token, question.within, count, question.named)
    numbers = {int(name) for name in question.named if name.isascii() and name.isdigit()}
    destinations, multimode = publication.destinations, publication.multimode
    if destinations and not multimode:
        if beyond := sorted(numbers - set(destinations)):
            raise InputError("reached", f"names node {beyond[0]}, which the event is not addressed to")
    elif numbers:
        destinations, multimode = tuple(sorted({*destinations, *numbers})), True
    return msgspec.structs.replace(
        publication,
        attributes={**publication.attributes, RECEIPT: encode_wanted(wanted)},
        destinations=destinations,
        multimode=multimode,
    )


def _counts(inquiry: Inquiry, receipt: Event) -> bool:
    """Whether a receipt is the first of its node, and of one that was asked for."""
    if receipt.publisher in inquiry.confirmed:
        return False
    inquiry.confirmed.add(receipt.publisher)
    if not inquiry.question.named:
        return True
    known_as = {str(receipt.publisher), receipt.attributes.get(NODE_NAME)}
    found = inquiry.named & known_as
    inquiry.named -= found
    return bool(found)
