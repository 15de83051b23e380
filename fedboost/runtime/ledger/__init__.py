"""The disclosure ledger: rows of what left and came, signed heads, comparison between parties.

Modules:
    comparison    compares two parties' ledgers
    ledger        the hash chain of what left and came
    messages      rows of the ledger from messages
    recalled      asks peers whether our ledger lacks rows
    rows          rows, heads and the hashes that chain them
    signed_heads  signed statements of where ledgers stand
"""
