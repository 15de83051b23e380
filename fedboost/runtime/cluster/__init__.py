"""All daemons of a job on one machine: as processes, or in this process.

Modules:
    cluster   daemons as processes on loopback
    local     all nodes in one process, without a network
    warming   small jobs that compile every kernel
"""
