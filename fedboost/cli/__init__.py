"""The command line; every command is a thin layer over the runtime.

Modules:
    account     `fedboost party account`: what jobs have used of each budget
    again       goes on with an interrupted `fedboost cluster run`
    audit       `fedboost audit`: attacks on the own record of a job
    backup      `fedboost backup`, `restore` and `party move`
    bagging     bags of models and of prediction files
    certs       `fedboost certs`: a development CA
    cluster     `fedboost cluster run` and `fedboost simulate`
    compare     `fedboost ledger verify`, `export`, `diff`, `restored`
    complete    shell completion
    connect     what commands share: user, coordinator, exit codes
    daemons     `fedboost party serve` and `fedboost coordinator serve`
    data        `fedboost data`: checks tables and splits a pooled one
    demo        `fedboost demo`: three parties on real data
    doctor      `fedboost doctor`: checks a daemon and its links
    estimate    `fedboost estimate`: time, memory and bytes of a job
    explaining  `fedboost model explain`: contributions of columns
    exporting   `fedboost model export` and `release`
    fetching    `fedboost model fetch`: takes a shard from a daemon
    groups      the tree of commands, loaded one by one
    guests      runs one job for each guest that a file names
    job         `fedboost job list`, `status`, `cancel`, `delete`
    ledger      `fedboost ledger show` and its tables
    main        entry point: runs a command and prints its error
    model       `fedboost model list`, `show`, `import`, `delete` and others
    outcome     prints how a job goes and ends; writes its report
    owner       `fedboost party jobs`, `approve`, `deny`, `forget`
    page        `fedboost party page` and `fedboost coordinator page`
    picturing   `fedboost model picture`: draws one tree
    predicting  `fedboost model predict`: scores rows by a job
    shelves     finds the stores in which a model's shards lie
    submit      `fedboost job submit`, `watch`, `resume`, `report`
    sweep       `fedboost job sweep`: cross-validation and searches
    sweeping    runs the jobs of a sweep and notes how they end
    warm        `fedboost warm`: compiles every kernel
"""
