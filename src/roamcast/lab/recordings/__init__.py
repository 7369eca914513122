"""Recorded mobility of any size to a contact plan: `contacts.py` is the job. `recording.py` splits a
recording for workers (`shares.py`), `contact_job.py` holds the workers' steps,
`plan_file.py` writes the plan.
"""
