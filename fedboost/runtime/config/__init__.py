"""What owners write: settings files of daemons, and a party's policy.

Modules:
    daemons    settings of a party and of a coordinator
    denials    what a policy says when it denies something
    policy     a party's policy: what is absent is denied
    reloading  what may change while a daemon runs
"""
