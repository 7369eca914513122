"""For programs: publish and subscribe through the node on this device.

```python
import asyncio
from roamcast.client import connect

async def main():
    async with connect("roamcast.sock") as client:
        await client.publish(topic="alarm/fire", attributes={"level": 5})
        async with client.subscribe(topic="alarm/#", sql="level > 3") as alarms:
            async for message in alarms:
                print(message.event.topic, message.event.attributes, message.hops)

asyncio.run(main())
```

`blocking` has the same for programs without asyncio; `roamcast.gateway.local.client_of(node)` gives the
same client for a node in the same process.
"""

from roamcast.client.asking import Answer, IncomingRequest, PublicationKeywords, QueryResult, Reached, Receipt
from roamcast.client.client import Client, ClientError, ClientSubscription, Message, NodeLink, NoEventError
from roamcast.client.connect import connect
from roamcast.event import Publication

__all__ = [
    "Answer",
    "Client",
    "ClientError",
    "ClientSubscription",
    "IncomingRequest",
    "Message",
    "NoEventError",
    "NodeLink",
    "Publication",
    "PublicationKeywords",
    "QueryResult",
    "Reached",
    "Receipt",
    "connect",
]
