"""Attacks of a party on what it has itself let others see, with the success of chance beside them.

Pure functions on arrays: nothing here reads a disk or another party.

Modules:
    attacks     the attacks: labels from nodes, members from losses, cells from sums
    findings    results of attacks, in numbers and words
    linear      solves for rows from the sums that were released
    releases    what a host released, read from its transcript
    transcript  reads a party's transcript of a job
"""
