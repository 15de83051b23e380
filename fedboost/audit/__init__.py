"""Attacks of a party on what it has itself let others see, with the success of chance beside them.

Pure functions on arrays: `releases` says what a host has let go, `linear` and `linking` solve for
its rows from the sums, `clustering` ranks labels from row groupings, `membership` tells training
rows from others, `attacks` runs them and puts what they found into words. Nothing here reads a
disk or another party.
"""
