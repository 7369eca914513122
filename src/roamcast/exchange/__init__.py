"""Between the applications of a node and those of others: requests and replies, receipts, queries.

All of it is ordinary events and subscriptions, so that every strategy carries it (`wire/exchange.py` has
their form). Read `exchanges.py` first.
"""

from roamcast.exchange.exchanges import ExchangeHost, Exchanges, FoundEvents, NodeCounters, QueryQuestion
from roamcast.exchange.inquiries import Inquiry, Question

__all__ = ["ExchangeHost", "Exchanges", "FoundEvents", "Inquiry", "NodeCounters", "QueryQuestion", "Question"]
