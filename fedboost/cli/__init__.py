"""The command line; every command is a thin layer over the runtime.

Modules:
    audit       `fedboost audit attack`: attacks on a party's own record of a job
    backup      `fedboost backup`, `restore` and `party move`
    certs       `fedboost certs`: a development CA
    cluster     `fedboost cluster run` and `simulate`; continues interrupted runs
    compare     `fedboost ledger verify`, `export`, `diff`, `restored`
    complete    shell completion
    connect     shared options of commands: user, coordinator, exit codes
    daemons     `fedboost party`, `coordinator`: `serve`, `page`; `fedboost doctor`
    data        `fedboost data`: checks tables and splits a pooled one
    demo        `fedboost demo`: three parties on real data
    estimate    `fedboost estimate` and `fedboost warm`
    explaining  `fedboost model explain` and `picture`
    exporting   `fedboost model export`, `release` and `fetch`
    groups      the tree of commands, loaded one by one
    health      `fedboost health`: a check for probes
    job         `fedboost job list`, `status`, `cancel`, `delete`
    ledger      `fedboost ledger show` and its tables
    main        entry point: runs a command and prints its error
    model       `fedboost model list`, `show`, `import`, `delete` and others
    outcome     runs jobs in turn, prints their progress and result, writes reports
    owner       `fedboost party jobs`, `approve`, `deny`, `forget`, `reload`, `account`
    predicting  `fedboost model predict`: scores rows by a job
    relay       `fedboost relay serve`
    replaying   `fedboost audit replay`, `verify`, `forget`: a guest that can be checked
    schema      `fedboost schema`: JSON Schemas of files
    shelves     finds the stores with a model's shards
    submit      `fedboost job submit`, `watch`, `resume`, `report`
    sweep       `fedboost job sweep`: cross-validation and searches
    sweeping    runs the jobs of a sweep and records their results
"""
