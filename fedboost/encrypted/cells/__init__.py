"""Cells of a host's histograms: rows that add to them, nodes that have them, candidates in them.

Modules:
    adding      where the cells of nodes are added up
    candidates  candidates of one node, in canonical and in secret order
    node_cells  makes and keeps the cells of open nodes
    request     what a host asks of cells, from its candidates to the answers
    row_cells   which rows add to which cells of a histogram
    shapes      shapes of candidates in messages
    tree_part   a tree's part at a worker: where rows stand, and cells
"""
