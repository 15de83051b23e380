"""Workers of a party on Dask, which hold a part of its rows each."""
