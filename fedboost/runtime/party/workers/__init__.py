"""Workers of a party on Dask, which hold a part of its rows each.

Modules:
    cluster_ca         which certificates a cluster of workers may take
    dask_part_workers  adds up encrypted rows on workers of Dask
"""
