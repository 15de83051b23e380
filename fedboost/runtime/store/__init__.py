"""A daemon's memory on disk: jobs, checkpoints, secrets, what jobs have left for later jobs.

Modules:
    backups         a store in one file, and back
    checkpoints     checkpoints, checked by hash
    database        the file as ledger and accounts have it open
    forgetting      deletes jobs and models that are over
    lock            one daemon per store
    outlines        what listings show of a job's manifest
    pieces          lists of checkpoints that only grow
    recordings      what a replay of a guest's job takes
    rows_in_common  rows and disclosures that later jobs use again
    schema          tables of the database, by version
    sealing         sealed secrets of jobs
    store           jobs and journals in the database
    tags            words by which users find jobs again
    transcripts     transcripts for audits
"""
