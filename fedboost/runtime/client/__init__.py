"""What a user or an owner says to a daemon.

Modules:
    client  a user's calls to a coordinator
    config  settings of a client
    owner   an owner's calls to the own party
"""
