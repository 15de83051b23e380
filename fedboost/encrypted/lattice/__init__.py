"""Both sides of the lattice schemes.

Modules:
    answers  how answers leave under a lattice: vectors or packed
    guest    the lattice schemes, and their guest's side
    host     a host's side of the lattice schemes
    parts    lattice cells with the workers that have their columns
"""
