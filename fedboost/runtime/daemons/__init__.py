"""Nodes served as processes, with their metrics and their checks.

Modules:
    access         a daemon's certificates, gate, server and links
    daemon         a node served over gRPC until a stop signal
    doctor         checks of a daemon's links
    metrics        a daemon's metrics for Prometheus
    party_metrics  metrics of a party
    relay          a relay as a process, or in the coordinator's
    traces         a daemon's spans for OpenTelemetry
"""
