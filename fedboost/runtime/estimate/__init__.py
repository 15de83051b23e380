"""What a job will take on this machine, before it runs."""
