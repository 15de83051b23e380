"""A daemon's data on disk: jobs, checkpoints, secrets, results for later jobs.

Modules:
    backups         a store in one file, and back
    checkpoints     checkpoints, checked by hash
    database        SQLite connection of ledger and accounts
    forgetting      deletes ended jobs and models
    lock            one daemon per store
    outlines        short form of a job's manifest for lists
    pieces          lists of checkpoints that only grow
    recordings      data for a replay of a guest's job
    rows_in_common  rows and disclosures that later jobs use again
    schema          tables of the database, by version
    sealing         sealed secrets of jobs
    store           jobs and journals in the database
    tags            users' words to find jobs by
    transcripts     transcripts for audits
"""
