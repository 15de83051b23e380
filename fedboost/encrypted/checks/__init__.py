"""Checks by hosts that gradients keep to their declared bits."""
