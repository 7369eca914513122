"""Why an expected delivery did not happen: `inquest.py` finds the reason, `story.py` collects what the trace
says about an event; `answer.py` holds the reasons and prints them.
"""
