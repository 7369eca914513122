"""Helpers of these tests are modules; the suite's import mode puts no folder on the path by itself."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[3])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
