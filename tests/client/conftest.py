"""A client of a service in this process."""

import pytest

from raysched.client import Client, LocalTransport
from tests.api.service_double import ServiceDouble


@pytest.fixture
def service() -> ServiceDouble:
    return ServiceDouble()


@pytest.fixture
def client(service: ServiceDouble) -> Client:
    return Client(user="ana", transport=LocalTransport(service))
