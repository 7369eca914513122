"""Why an expected delivery did not happen: `inquest.py` asks, `story.py` is what the trace tells of an event,
`spread.py` whom it could have reached; `answer.py` holds the reasons and shows them.
"""
