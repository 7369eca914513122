"""The broker core that all strategies share: local subscriptions, and which events were already seen.

`core` stands between the applications of a node and its strategy. `seen` is the duplicate
filter, `store` keeps memorized events for their lifetime. A paper's own tables (Chapar's bitmaps,
ODMRP's summaries) stand beside this core in their strategy, as summaries of it; they never replace it.
"""
