"""Recorded mobility of any size to a contact plan: `contacts.py` is the job, `recording.py` cuts a
recording up for workers, `contact_job.py` is what they do.
"""
