"""A job at a party: its states, memory, table, files and results.

Modules:
    files           a job's files
    job             one job: its attempt, session, table and files
    memory          admits jobs within the memory of the daemon
    results         saves the results of stages
    states          every transition of a job's state, in one table
    table           a party's rows in one job
    table_warnings  warnings about a party's table
    value_groups    the groups of a table's values that jobs may tell apart
"""
