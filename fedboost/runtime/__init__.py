"""Daemons, channels, the coordinator, the store: everything that touches network, clock, threads and processes."""
