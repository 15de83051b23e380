"""A party's side of jobs: its node, a job's state and files, the session of a stage.

Modules:
    alone        a model of one party's own rows and columns
    answers      steps at work; does what is asked once, and repeats the answer
    cluster_ca   which certificates a cluster of workers may take
    collecting   what a step takes, out of the inbox
    dask_shards  adds up encrypted rows on workers of Dask
    files        a job's files
    halting      pauses, failures, cancellations, denials; the end of a job
    inbox        messages that have arrived and are not used yet
    job          one job: its attempt, session, table and files
    job_memory   admits jobs as far as the daemon's memory goes
    job_states   every move of a job, in one table
    model_store  lists models and hands out shards
    node         what coordinator, peers and owner may ask, and how much at once
    notes        when messages reach the ledger
    outbox       sends messages and notes them in the ledger
    parts        what all jobs of a party share; the jobs at work
    rehearsing   what default limits would say of a trial
    releases     a host's consent to a merged model
    replay_results  what a replay says, signed, and a host's look at it
    replaying    a guest's steps again, held to its ledger
    replays      replays a job by what the store has kept of it
    results      what a stage leaves
    roles        a party's roles and steps in one stage
    session      one party's side of one stage
    stages       begins attempts; opens, keeps and closes stages
    step_work    a step at work, in a thread or in the event loop
    table        a party's rows in one job
    table_warnings  what a party's table makes one doubt
    value_groups  the groups of a table's values that jobs may tell apart
"""
