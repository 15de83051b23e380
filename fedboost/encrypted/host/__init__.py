"""A host's side of trees: sums, the one way out for them, and the meter that counts them."""
