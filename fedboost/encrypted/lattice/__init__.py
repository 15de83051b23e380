"""Both sides of the lattice schemes."""
