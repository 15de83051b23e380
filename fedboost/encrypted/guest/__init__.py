"""A guest's side of trees: totals, offers of hosts, splits that won, rounds."""
