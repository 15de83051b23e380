"""Cells of a host's histograms: rows that add to them, nodes that have them, candidates in them.

Modules:
    adding      workers that add up the cells of nodes
    candidates  candidates of one node, in canonical and in secret order
    node_cells  makes and keeps the cells of open nodes
    request     a host's request for sums, from its candidates to the answers
    row_cells   cells of a histogram that each row adds to
    shapes      shapes of candidates in messages
    tree_part   a tree's part at a worker: nodes of rows, and cells
"""
