"""Nodes served as processes, with their metrics and their checks.

Modules:
    access         a daemon's certificates, its gate, its server, its way out
    daemon         a node served over gRPC until it is told to stop
    doctor         checks of a daemon's links
    metrics        a daemon's metrics for Prometheus
    party_metrics  metrics of a party
    traces         a daemon's spans for OpenTelemetry
"""
