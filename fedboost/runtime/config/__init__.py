"""Files written by owners: settings of daemons, and a party's policy.

Modules:
    ask        a job's request to a party
    daemons    settings of a party and of a coordinator
    fields     kinds of values that several settings have
    metrics    settings of metrics
    page       settings of a page
    policy     a party's policy: an absent key denies
    refusals   error texts of a policy
    relay      settings of a relay
    reloading  settings that may change while a daemon runs
"""
