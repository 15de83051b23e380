"""The disclosure ledger: rows of what left and came, signed heads, comparison between parties."""
