"""Estimates a job's memory, bytes and time on this machine before it runs.

Modules:
    cipher_tally     counts of operations of a cipher
    counting_cipher  a cipher that counts its operations
    estimate         memory, bytes and approximate time
    footprint        memory of a job at one party
    phases           counts of the work that parties do at the same time
    price_ciphers    measures encryption schemes
    prices           the time of each primitive
    rehearsal        runs a walk in one process and counts
    scenes           tables of a job, and small ones like them
    setting          a job with its tables, from files or from numbers
    stages           the stages of a job, rehearsed and scaled up
"""
