"""Attacks of a party on the data it disclosed itself, each compared with chance.

Pure functions on arrays: nothing here reads a disk or another party.

Modules:
    attacks     the attacks: labels from nodes, members from losses, cells from sums
    findings    results of attacks, in numbers and words
    linear      solves for rows from the sums that were released
    releases    what a host released, read from its transcript
    transcript  reads a party's transcript of a job
"""
