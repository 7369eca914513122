"""The tables of RFC 3626, each with its deadlines.

`links` (who hears whom; `hysteresis` weighs them), `neighbours` (who is two hops away), `topology` (what
relays advertise), `associations` (several interfaces, other networks), `duplicates` (what was heard before),
`numbers` (nodes of ours, in the open). `deadlines` is auxiliary.
"""
