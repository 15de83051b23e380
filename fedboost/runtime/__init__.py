"""Daemons, channels, stores: everything that touches network, clock, threads and processes.

Modules:
    client       calls of a user or an owner to a daemon
    cluster      all daemons of a job on one machine
    config       settings files and policies
    coordinator  the coordinator's side of jobs
    daemons      nodes as processes, with their metrics
    estimate     what a job will take on this machine
    jobs         manifests, signatures and submissions
    ledger       the disclosure ledger and signed heads
    party        a party's side of jobs
    policy       what a party's owner allows, judged
    process      clocks, logs, threads and worker processes
    store        a daemon's memory on disk
    transport    addresses, identities, mutual TLS and gRPC
"""
