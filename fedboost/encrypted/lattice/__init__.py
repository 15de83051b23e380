"""Both sides of the lattice schemes.

Modules:
    answers  answers of a lattice scheme: vectors or packed
    guest    the lattice schemes, and their guest's side
    host     a host's side of the lattice schemes
    parts    lattice cells with the workers that have their columns
"""
