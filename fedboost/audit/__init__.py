"""Attacks of a party on what it has itself let others see, with the success of chance beside them.

Pure functions on arrays: nothing here reads a disk or another party.

Modules:
    attacks     runs all attacks and reports what they found
    clustering  ranks labels from how rows are grouped in nodes
    findings    results of attacks, in numbers and words
    linear      solves for rows from the sums that were released
    membership  tells training rows from others by their loss
    releases    what a host released, read from its transcript
    transcript  reads a party's transcript of a job
"""
