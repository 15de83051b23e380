"""A growing tree as guest and hosts both keep it: rows, and the trees that grow at once.

Modules:
    batch   trees that grow together, their nodes numbered as one
    growth  nodes of a tree's rows, for guest and host
"""
