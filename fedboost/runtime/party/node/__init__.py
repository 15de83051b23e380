"""The node of a party: questions of coordinator, peers and owner, and the jobs they concern.

Modules:
    halting  pauses, failures, cancellations, denials; the end of a job
    node     what coordinator, peers and owner may ask, and how much at once
    parts    what all jobs of a party share; the jobs at work
    stages   begins attempts; opens, keeps and closes stages
"""
