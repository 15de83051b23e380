"""Daemons, channels, stores: all code that uses network, clock, threads and processes.

Modules:
    client       calls of a user or an owner to a daemon
    cluster      all daemons of a job on one machine
    config       settings files and policies
    coordinator  the coordinator's side of jobs
    daemons      nodes as processes, with their metrics
    estimate     memory, bytes and time of a job on this machine
    jobs         manifests, signatures and submissions
    ledger       the disclosure ledger and signed heads
    party        a party's side of jobs
    policy       judges jobs by the settings of a party's owner
    process      clocks, logs, threads and worker processes
    relay        joins daemons that only dial out
    store        a daemon's memory on disk
    transport    addresses, identities, mutual TLS and gRPC
"""
