"""What a job is, as its submitter and all daemons sign it.

Modules:
    manifest   what all parties sign
    signed     a job as one party sees it
    submitted  reads and checks what users submit
"""
