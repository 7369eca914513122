"""The laboratory: what is done with scenarios and traces. Needs `roamcast[lab]`.

One run: `run/` (from scenario to tables and metrics), `why/` (why a delivery did not happen). Many runs:
`sweep/`, over `spark/` (the session and its Java). `report/` shows a sweep; `published/` puts the papers'
figures beside ours, some of them by `studies/`. `recordings/` makes contact plans of recorded mobility,
`groups/` multicast groups of recorded subscriptions, `live/` tables of what running nodes write.
"""
