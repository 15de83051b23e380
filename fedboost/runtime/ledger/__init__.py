"""The disclosure ledger: rows of sent and received messages, signed heads, comparisons.

Modules:
    comparison    compares two parties' ledgers
    ledger        the hash chain of sent and received messages
    rows          rows, heads and the hashes that chain them
    signed_heads  signed statements of the ends of ledgers
"""
