"""Workers of a party on Dask; each holds a part of the party's rows.

Modules:
    cluster_ca         checks the CA of a cluster of workers
    dask_part_workers  adds up encrypted rows on workers of Dask
"""
