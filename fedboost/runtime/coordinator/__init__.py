"""The coordinator's side of jobs: its node, the walk of a job, who has gone and comes back."""
