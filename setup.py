"""The optional compiled build. Everything else about the package is in pyproject.toml.

With `ROAMCAST_COMPILED=1` the modules below become C extensions by mypyc, which needs a C compiler and mypy.
The traces are the same octet for octet (`make compiled` proves it). Without it nothing is compiled.

Which modules: those in which a simulation spends its time and which define no messages (mypyc makes no
msgspec structs). More brings less: with the epidemic and tree strategies compiled too, the flooding case
takes 1.5 instead of 1.7 s, the build three times as long, and mypyc 1.x's code crashed in `epidemic`.
"""

import os

from setuptools import setup

COMPILED = (
    "src/roamcast/broker/core.py",
    "src/roamcast/broker/seen.py",
    "src/roamcast/runtime/sim/csma.py",
    "src/roamcast/runtime/sim/engine.py",
    "src/roamcast/runtime/sim/host.py",
    "src/roamcast/runtime/sim/links.py",
    "src/roamcast/runtime/sim/medium.py",
    "src/roamcast/world/reach.py",
)

extensions = []
if os.environ.get("ROAMCAST_COMPILED") == "1":
    from mypyc.build import mypycify

    extensions = mypycify(["--config-file", "pyproject.toml", *COMPILED], opt_level="3", debug_level="0")

setup(ext_modules=extensions)
