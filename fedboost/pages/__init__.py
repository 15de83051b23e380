"""A daemon's page for people: the coordinator's for its users, a party's for its owner.

    browser ── sign-in, forms, a look every two seconds ──► aiohttp ──► the node's own methods

It runs in the daemon's event loop, on a port of its own, as one user of the settings file: what
that user may not do by command, the page does not do either. Pages are whole without scripts; with
them they follow what happens.
"""
