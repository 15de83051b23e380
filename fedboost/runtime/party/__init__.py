"""A party's side of jobs: its node, a job's state and files, the session of a stage.

Modules:
    job      one job: states, memory, table, files, results
    node     questions of coordinator, peers and owner
    owner    rehearsals, replays, releases, models in the store
    stage    the session of a stage, its steps and messages
    workers  workers on Dask
"""
