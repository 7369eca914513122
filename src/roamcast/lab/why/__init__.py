"""Why an expected delivery did not happen: `inquest.py` asks, `story.py` is what the trace tells of an
event.
"""
