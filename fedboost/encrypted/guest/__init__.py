"""A guest's side of trees: totals, offers of hosts, splits that won, rounds.

Modules:
    offers  reads, scores and chooses the offers of hosts
    rounds  a guest's rounds: margins, metrics, early stopping
    tree    a growing tree at the guest
"""
