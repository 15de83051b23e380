"""Checks by hosts that gradients keep to their declared bits.

Modules:
    gradient_check  finds gradients above their declared bits
    steps           steps of a check of gradients
"""
