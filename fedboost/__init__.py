"""fedboost: gradient boosting across organisations that may not pool their tables.

Modules:
    __main__     runs the command line for `python -m fedboost`
    aggregation  sums under masks, for horizontal protocols
    audit        attacks of a party on its own records
    cli          the command line
    core         gradient boosting on one table, in numpy and numba
    crypto       encryption, masking and set intersection
    data         tables and ids
    encrypted    trees over encrypted gradients, for vertical protocols
    flow         parts of a protocol: roles, steps, messages, walk
    ground       errors, settings, messages as bytes, state, files, kernels: the lowest layer
    job          the job file
    messages     generated messages, with a note of the data each reveals
    model        models on disk: inspection, prediction, export
    oblivious    ids in common by an oblivious function, for alignments
    pages        pages in the browser for users and owners
    protocols    the protocols, a folder each
    report       a job's journal as HTML, as a card and in the terminal
    runtime      daemons: network, disk, clock, policies
    sdk          estimators and clients for Python
    sweep        many jobs over a grid of settings
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Return a name of the SDK, which is loaded at the first use because few commands need it.

    Names of modules begin with a small letter, names of the SDK with a capital, except
    `load_model`.
    """
    if name[:1].isupper() or name in ("load_model", "__all__"):
        sdk = import_module("fedboost.sdk")
        if name in sdk.__all__ or name == "__all__":
            return getattr(sdk, name)
    raise AttributeError(f"module 'fedboost' has no attribute {name!r}")
