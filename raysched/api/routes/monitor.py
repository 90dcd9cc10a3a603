"""How the scheduler is doing: health for people, probes for a supervisor, metrics for Prometheus."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from raysched.api.doors import Caller
from raysched.api.problems import ApiError
from raysched.api.views import Alive, HealthView
from raysched.client.client import Client
from raysched.metrics import families

router = APIRouter(tags=["monitoring"])
probes = APIRouter(tags=["monitoring"])


@router.get("/health", response_model=HealthView)
def health(client: Caller) -> Any:
    """The scheduler's own account: epoch, versions, nodes by health, ticks."""
    return client.health()


@probes.get("/healthz", response_model=Alive)
def alive() -> Any:
    """Whether this process answers; says nothing about the scheduler."""
    return {"status": "ok"}


@probes.get("/readyz", response_model=Alive)
def ready(request: Request) -> Any:
    """Whether the scheduler answers and can keep what it is told; 503 while it does not."""
    client: Client = request.app.state.client
    found = client.health()
    if found["status"] != "ok":
        why = found.get("store_error") or found["status"]
        raise ApiError(f"the scheduler is not ready: {why}", code="NOT_READY", status=503)
    return {"status": "ok"}


@probes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(client: Caller) -> Response:
    """The scheduler's figures in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SchedulerCollector(client))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class SchedulerCollector(Collector):
    """Asks the scheduler for its samples whenever Prometheus asks us."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """One family per metric."""
        for family in families(self._client.metrics()):
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            shown = kind(family.name, family.help, labels=family.label_names)
            for values, value in family.samples:
                shown.add_metric(values, value)
            yield shown

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing beforehand: registering must not call the scheduler."""
        return []
