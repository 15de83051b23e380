"""All daemons of a job on one machine: as processes, or in this process."""
