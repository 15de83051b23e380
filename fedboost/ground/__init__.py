"""Arrays, errors, settings, messages as bytes, state, files, kernels and ids: the lowest layer.

Modules:
    arrays        names of arrays of numbers
    build_version  the version with a build's commit
    disk          writes files whole or not at all
    errors        every error, with its code and its advice
    formats       numbers of the wire and of all files
    hashes        SHA-256 of many ids at once
    ids           ids of rows as one buffer
    kernel_files  files of compiled kernels
    kernel_folders  the folders of these files
    kernels       marks functions that numba compiles at their first call
    mapped        cells in files without a name
    part_workers  workers that hold parts of a party's rows and compute with them
    printable     makes text from elsewhere safe to print
    settings      strict models of files, jobs and parameters
    slot          attributes that exist only between two steps
    state         saves dataclasses in checkpoints and loads them
    strict_yaml   reads YAML without its surprises
    wire          reads and checks messages and arrays
    workers       runs bulk arithmetic, in worker processes or here
"""
