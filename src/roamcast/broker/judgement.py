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
    event = delivery.event
    if node in event.destinations:
        return True
    if delivery.modulated:
        return all(number in standing for number in delivery.subscriptions)
    if event.destinations and not event.multimode:
        return False  # for its destinations alone
    for number in delivery.subscriptions:
        subscription = standing.get(number)
        if subscription is not None and subscription.modulator is None and subscription.filter.matches(event):
            return True
    return False
