"""A party's side of jobs: its node, a job's state and files, the session of a stage."""
