"""Web pages of daemons: the coordinator's for its users, a party's for its owner.

browser ── sign-in, forms, a look every two seconds ──► aiohttp ──► the node's own methods

A page runs in the daemon's event loop, on its own port, as one user of the settings file: the page
allows this user exactly what the commands allow. Pages are complete without scripts; scripts add
live updates.

Modules:
    approval     a job that asks for approval, as HTML
    asking       explains a proposed job to its owner
    audits       runs `fedboost audit` in a process beside the daemon
    board        the coordinator's jobs, as HTML
    choosing     filters, sorts and pages long lists by the address
    coordinator  the coordinator's routes
    following    reads journals once for all views
    frame        the frame around every page
    gate         sign-in, sessions and checks of every request
    ledgers      the ledger, as HTML
    oidc         sign-in by an OpenID Connect provider
    owner        a party's jobs, as HTML
    parts        small parts of pages
    party        the party's routes
    records      data sets and accounts, as HTML
    runs         all jobs in a list, and comparisons
    serving      starts and stops a page with its daemon
    sessions     sessions of signed-in users
    shapes       shapes of data sets, read in the background
    token        the token to sign in with
    under_way    running jobs at a party, as HTML
"""
