"""A whole cluster in one process, on a clock that only moves when nothing else can."""
