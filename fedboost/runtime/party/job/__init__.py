"""A job at a party: its states, memory, table, files and results."""
