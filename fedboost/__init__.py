"""fedboost: gradient boosting across organisations that may not pool their tables.

Modules:
    __main__      runs the command line for `python -m fedboost`
    aggregation   sums under masks, on which horizontal protocols build
    arrays        names of arrays of numbers
    audit         attacks of a party on its own records
    cli           the command line
    core          gradient boosting on one table, in numpy and numba
    crypto        encryption, masking and set intersection
    data          tables and ids
    disk          writes files whole or not at all
    encoded_ids   ids of rows as one buffer
    encrypted     trees over encrypted gradients, on which vertical protocols build
    errors        every error, with its code and its advice
    flow          what a protocol is: roles, steps, messages, walk
    job           the job file
    kernel_files  the folder of compiled kernels
    kernels       marks functions that numba compiles at their first call
    mapped        cells in files without a name
    messages      generated messages, and what each reveals
    model         models on disk: inspection, prediction, export
    oblivious     ids in common by an oblivious function, on which alignments build
    pages         pages in the browser for users and owners
    printable     makes text from elsewhere safe to print
    protocols     the protocols, a folder each
    report        a job's journal as HTML, as a card and in the terminal
    runtime       daemons: network, disk, clock, policies
    sdk           estimators and clients for Python
    settings      strict models of files, jobs and parameters
    sha256        SHA-256 of many ids at once
    shards        who holds parts of a party's rows and computes with them
    slot          attributes that exist only between two steps
    state         saves and loads what a checkpoint keeps of dataclasses
    strict_yaml   reads YAML without its surprises
    sweep         many jobs over a grid of settings
    wire          reads and checks messages and arrays
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Return what the SDK has under a name, which is loaded then, as a command needs little of it.

    Modules begin with a small letter, and what the SDK offers with a capital, but for one function.
    """
    if name[:1].isupper() or name in ("load_model", "__all__"):
        sdk = import_module("fedboost.sdk")
        if name in sdk.__all__ or name == "__all__":
            return getattr(sdk, name)
    raise AttributeError(f"module 'fedboost' has no attribute {name!r}")
