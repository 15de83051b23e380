"""What a job will take on this machine, before it runs.

Modules:
    cipher_tally     what is done with a cipher, counted
    counting_cipher  a cipher that counts its operations
    estimate         memory, bytes and about how long
    footprint        memory that a job takes of one party
    phases           counts of what parties do at the same time
    price_ciphers    measures encryption schemes
    prices           what primitives take
    rehearsal        runs a walk in one process and counts
    scenes           tables of a job, and small ones like them
    setting          a job with its tables, from files or from words
    stages           the stages of a job, rehearsed and scaled up
"""
