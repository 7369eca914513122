"""The league: the same dozen scenarios for every strategy, ours and others', as one experiment on Spark.

`standing` says who leads where, and whether that could be chance; `league` who takes part in which scenarios,
and what comes out, as text and pages. `scenarios/` and `entries.toml` are part of the package, so that the
league is the same wherever it is run. `docs/study/league.md` is its result.
"""
