"""What a job will take on this machine, before it runs.

Modules:
    estimate       counts times prices: what a job will take
    price_ciphers  measures encryption schemes
    price_daemons  measures calls between daemons
    price_lists    measures the other primitives
    prices         prices of this machine, measured once and kept
    scenes         tables of a job as an estimate sees them
"""
