"""Daemons, channels, stores: everything that touches network, clock, threads and processes."""
