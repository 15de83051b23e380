"""What owners write: settings files of daemons, and a party's policy.

Modules:
    ask        what a job wants of a party
    daemons    settings of a party and of a coordinator
    fields     kinds of values that several settings have
    policy     a party's policy: what is absent is denied
    refusals   what a policy says where it refuses
    reloading  what may change while a daemon runs
"""
