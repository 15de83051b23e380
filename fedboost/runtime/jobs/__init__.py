"""Content of a job, as its submitter and all daemons sign it.

Modules:
    job_log    who did what, in a daemon's log
    manifest   the text that all parties sign
    signed     a job as one party sees it
    submitted  reads and checks submissions of users
    wire_numbers  agreement on a number of the wire
"""
