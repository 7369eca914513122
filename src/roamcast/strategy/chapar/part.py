"""What the parts of one Chapar node share. Each thing here has one responsibility, and only its own
methods change what it holds."""

from typing import NamedTuple

from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar.brokers import Brokers
from roamcast.strategy.chapar.inbox import Inbox
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.sending import Sending
from roamcast.strategy.chapar.tables import Tables


class Shared(NamedTuple):
    context: StrategyContext
    options: ChaparOptions
    messenger: Sending
    tables: Tables
    brokers: Brokers
    inbox: Inbox


class Part:
    def __init__(self, shared: Shared) -> None:
        context, self._options, self._messenger, self._tables, self._brokers, self._inbox = shared
        self._host, self._broker, self._underlay = context[:3]
        self._in_force = self._options.in_force()
