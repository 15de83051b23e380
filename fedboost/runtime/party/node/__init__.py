"""The node of a party: requests of coordinator, peers and owner, and the jobs they concern.

Modules:
    halting   pauses, failures, cancellations, denials; the end of a job
    node      the requests of coordinator, peers and owner, and limits on messages in flight
    parts     objects that all jobs of a party share; the active jobs
    refusals  refused jobs in the party's own log
    stages    begins attempts; opens, saves and closes stages
"""
