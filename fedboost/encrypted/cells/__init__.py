"""Cells of a host's histograms: rows that add to them, nodes that have them, candidates in them."""
