"""Payloads above the bound of one event: cut into chunks at the publishing node, joined at the receiving one.

A chunk is an ordinary memorized event with the topic, type, attributes and destinations of the whole, so that
every strategy matches, carries, stores, repairs and hands it over as any other. Read `form.py` (what a
chunk looks like), `transfer.py` (cutting), then `roamcast/broker/assembly.py` (joining, from the store).
`roamcast/applications.py` uses them: above it nobody sees a chunk, below it nobody sees a whole.
"""
