"""Clients of daemons, for users and owners.

Modules:
    client   a user's calls to a coordinator
    config   settings of a client
    schemas  JSON Schemas of the files that people write
"""
