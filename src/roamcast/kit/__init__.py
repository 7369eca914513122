"""What protocols are made of, each mechanism once. A strategy or an underlay is a policy over these parts.

- `protocol.py`: timers that know their action; messages that know their label; decode or drop, then dispatch.
- `tables.py`: bounded and expiring tables that report what they push out.
- `soft_state.py`: tables whose entries end by themselves, and the one timer that removes them.
- `numbers.py`: counters that survive a crash, for everything that other nodes compare.
- `relay.py`: pass on once, after a delay, unless no longer needed.
- `repair.py`: what is held, digests by runs, requests with deadlines, answers in turn.
- `replica.py`: one versioned record per owner, the newest stands, compared by a fingerprint.
- `rates.py`: token bucket, a limit that follows losses, messages ahead of time.
- `confirm.py`: sent until confirmed, by an acknowledgement or by overhearing; measured round trips.
- `custody.py`: which nodes a full store waits for.

`docs/develop/architecture.md` says when to use which. None of them knows a strategy.
"""
