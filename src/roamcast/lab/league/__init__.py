"""The league: the same dozen scenarios for every strategy, ours and others', as one experiment on Spark.

Read in this order: `contest` (who takes part, in which scenarios), `standing` (who leads where, and whether
that could be chance), `page` (the result as text), `league` (the command's function). `scenarios/` and
`entries.toml` are part of the package, so that the league is the same wherever it is run.
`docs/study/league.md` is its result.
"""
