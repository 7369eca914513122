"""Is all that a producer gave us where it goes? Asked before the producer publishes through another broker.

Events of one producer keep their order as long as they go through one broker. Before they go through another,
those on the old way must have been handled: in the home brokers they were sent to, and where those had to
pass them on because a consumer was on the move. So a question goes the way of the events: a broker answers
when it holds none of the producer's events back, and everyone it has passed some on to has answered.
"""

from collections.abc import Callable
from dataclasses import dataclass

from roamcast.strategy.opportunistic.messages import Barrier, Left, Passed
from roamcast.strategy.opportunistic.post import Post
from roamcast.units import NodeId

PRODUCERS_MAX = 4_096
QUESTIONS_MAX = 4_096


@dataclass
class Question:
    asker: NodeId
    producer: NodeId
    number: int  # the asker's own
    is_leave: bool  # asked by the producer itself
    waiting: set[NodeId]


class Barriers:
    def __init__(self, post: Post, holds: Callable[[NodeId], bool]) -> None:
        """`holds`: whether this broker keeps events of a producer back for now."""
        self._post = post
        self._holds = holds
        self._sent: dict[NodeId, dict[NodeId, None]] = {}  # where each producer's events have gone from here
        self._questions: dict[int, Question] = {}
        self._asked = 0

    def on_sent(self, producer: NodeId, to: NodeId) -> None:
        if producer not in self._sent and len(self._sent) >= PRODUCERS_MAX:
            del self._sent[next(iter(self._sent))]
        self._sent.setdefault(producer, {})[to] = None

    def ask(self, asker: NodeId, producer: NodeId, number: int, *, is_leave: bool) -> None:
        if len(self._questions) >= QUESTIONS_MAX:
            del self._questions[next(iter(self._questions))]
        self._asked += 1
        waiting = set(self._sent.pop(producer, ()))
        self._questions[self._asked] = Question(asker, producer, number, is_leave, waiting)
        for broker in sorted(waiting):
            self._post.write(broker, Barrier(producer, self._asked))
        self.check()

    def on_passed(self, sender: NodeId, message: Passed) -> None:
        question = self._questions.get(message.number)
        if question is not None:
            question.waiting.discard(sender)
            self.check()

    def on_reset(self, peer: NodeId) -> None:
        """It lost what it had, and the question."""
        for question in self._questions.values():
            question.waiting.discard(peer)
        self.check()

    def is_idle(self) -> bool:
        return not self._questions

    def check(self) -> None:
        """Answer what can be answered by now."""
        for number, question in list(self._questions.items()):
            if not question.waiting and not self._holds(question.producer):
                if question.producer in self._sent:
                    self._follow(question.producer)
                    continue
                del self._questions[number]
                producer, asked = question.producer, question.number
                self._post.write(
                    question.asker, Left(asked) if question.is_leave else Passed(producer, asked)
                )

    def _follow(self, producer: NodeId) -> None:
        """What was held back when somebody asked has been sent on since (a handoff was rolled back): the
        questions go the same way, behind it."""
        for broker in sorted(self._sent.pop(producer)):
            for number, question in self._questions.items():
                if question.producer == producer and broker not in question.waiting:
                    question.waiting.add(broker)
                    self._post.write(broker, Barrier(producer, number))
