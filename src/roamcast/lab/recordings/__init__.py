"""Recorded mobility of any size to a contact plan: `contacts.py` is the job. `recording.py` cuts a recording
up for workers (`shares.py`, `share_files.py`), `contact_job.py` is what they do with it, `plan_file.py` what
comes of it.
"""
