"""A job at a party: its states, memory, table, files and results.

Modules:
    files           a job's files
    job             one job: its attempt, session, table and files
    memory          admits jobs as far as the daemon's memory goes
    results         what a stage leaves
    states          every move of a job, in one table
    table           a party's rows in one job
    table_warnings  what a party's table makes one doubt
    value_groups    the groups of a table's values that jobs may tell apart
"""
