"""What a gRPC server leaves out of the log."""

import logging

import pytest
from grpc._cython import cygrpc

import fedboost.runtime.transport.server  # noqa: F401  (filters gRPC's log)

LOG = logging.getLogger("grpc._cython.cygrpc")


@pytest.mark.parametrize(
    ("error", "logged"),
    [(cygrpc.ExecuteBatchError("the caller has gone"), 0), (ValueError("a bug"), 1)],
)
def test_a_call_whose_caller_has_gone_is_not_logged(caplog, error, logged):
    try:
        raise error
    except type(error):
        LOG.exception("Unexpected [%s] raised by servicer method", type(error).__name__)
    assert len(caplog.records) == logged
