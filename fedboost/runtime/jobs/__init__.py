"""What a job is, as its submitter and all daemons sign it."""
