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
        self._host = shared.context.host
        self._broker = shared.context.broker
        self._underlay = shared.context.underlay
        self._options = shared.options
        self._in_force = shared.options.in_force()
        self._messenger = shared.messenger
        self._tables = shared.tables
        self._brokers = shared.brokers
        self._inbox = shared.inbox
