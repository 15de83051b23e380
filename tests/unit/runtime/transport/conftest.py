"""Folders of certificates, for each test its own or for all of a file."""

import pytest

from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Term
from tests.support.certificates import LEAVES, NOW


@pytest.fixture
def certs(tmp_path):
    """A folder that the test may spoil."""
    folder = tmp_path / "certs"
    authority.create_certificates(folder, LEAVES, Term(NOW))
    return folder


@pytest.fixture(scope="module")
def other_certs(tmp_path_factory):
    """The folder of another CA."""
    folder = tmp_path_factory.mktemp("other")
    authority.create_certificates(folder, LEAVES, Term(NOW))
    return folder
