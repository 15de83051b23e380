"""A host's side of trees: sums, the one way out for them, and the meter that counts them.

Modules:
    answers  a host's answers of one layer: sums and row divisions
    meter    counts the equations that released sums give, and the bits that place rows
    release  the one way out for a host's sums
    tree     a growing tree at a host
"""
