"""Whether a delivery was right: the one definition behind `Delivered.matched`, in every runtime.

Filters are evaluated one by one, without the broker's index: this is the check of the broker.
"""

from collections.abc import Mapping

from roamcast.broker.core import Delivery, Subscription
from roamcast.units import NodeId


def is_right(delivery: Delivery, node: NodeId, standing: Mapping[int, Subscription]) -> bool:
    """Whether this delivery is for an application of `node`, where the subscriptions `standing` stand.

    It is if the event names the node as a destination, or matches a subscription that it was delivered for.
    What a modulator made need not match the filter any more, but its subscription must stand.
    """
    event, numbers, _, is_modulated = delivery  # faster than by name, as below
    if event.destinations:
        if node in event.destinations:
            return True
        if not event.multimode and not is_modulated:
            return False  # for its destinations alone
    if is_modulated:
        return all(number in standing for number in numbers)
    for number in numbers:
        subscription = standing.get(number)
        if subscription is not None:
            _, wanted, _, modulator = subscription
            if modulator is None and wanted.matches(event):
                return True
    return False
