"""A guest's side of trees: totals, offers of hosts, splits that won, rounds.

Modules:
    offers  what the guest reads of candidates and chooses
    rounds  a guest's rounds: margins, metrics, early stopping
    tree    a growing tree at the guest
"""
