"""What a job will take on this machine, before it runs.

Modules:
    cipher_tally     what is done with a cipher, counted
    counting_cipher  a cipher that counts its operations
    estimate         counts times prices: what a job will take
    footprint        memory that a job takes of one party
    phases           counts of what parties do at the same time
    price_ciphers    measures encryption schemes
    prices           prices of this machine, measured once and kept
    rehearsal        runs a walk in one process and counts
    scenes           tables of a job, and small ones like them
    stages           the stages of a job, rehearsed and scaled up
"""
