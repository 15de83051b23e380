"""A daemon's memory on disk: jobs, checkpoints, secrets, what jobs have left for later jobs."""
