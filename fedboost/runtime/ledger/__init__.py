"""The disclosure ledger: rows of what left and came, signed heads, comparison between parties.

Modules:
    comparison    compares two parties' ledgers
    ledger        the hash chain of what left and came
    rows          rows, heads and the hashes that chain them
    signed_heads  signed statements of where ledgers stand
"""
