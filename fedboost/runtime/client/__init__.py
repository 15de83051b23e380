"""What a user or an owner says to a daemon.

Modules:
    client   a user's calls to a coordinator
    config   settings of a client
    schemas  JSON Schemas of the files that people write
"""
