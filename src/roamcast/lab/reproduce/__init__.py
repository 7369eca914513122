"""`roamcast reproduce`: run the published figures and put ours beside theirs.

`run` sweeps each figure into a folder of its own and writes `reproduction.json`; `page` makes the HTML
beside it. What is published, and what agreement means, is data: `lab/published/`.
"""

from roamcast.lab.reproduce.run import Reproduction, reproduce

__all__ = ["Reproduction", "reproduce"]
