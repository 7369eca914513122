"""Why an expected delivery did not happen: `inquest.py` finds the reason, `story.py` collects what the trace
says about an event, `spread.py` computes whom it could have reached; `answer.py` holds the reasons and prints
them.
"""
