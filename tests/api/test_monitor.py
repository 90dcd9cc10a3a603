"""What is read: quota, usage, health, metrics, and the description of the API itself."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raysched.api.problems import MEDIA_TYPE
from raysched.metrics import exposition
from tests.api.conftest import AnyService, Api, only_double
from tests.api.service_double import ServiceDouble


@pytest.mark.parametrize(
    "path",
    ["/v1/shares", "/v1/shares/nlp", "/v1/shares/nlp/limits", "/v1/usage", "/v1/loans", "/v1/quota", "/v1/pools"]
    + ["/v1/nodes", "/v1/nodes/n0", "/v1/alerts", "/v1/health", "/v1/ledger", "/v1/reservations", "/v1/overrides"],
)
def test_everything_can_be_read(api: Api, path: str) -> None:
    answer = api("GET", path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"


def test_the_overview_is_the_callers_own(api: Api) -> None:
    api.submit(gpu=8)
    for query, used in (("share=nlp", 8_000), ("share=nlp&user=bo", 0)):
        (overview,) = api("GET", f"/v1/quota?{query}").json()
        assert (overview["share"], overview["kinds"]["gpu"]["used"]) == ("nlp", used)


def test_amounts_stay_whole_numbers(api: Api) -> None:
    api.submit(gpu=4, count=3)
    (loan,) = api("GET", "/v1/loans").json()
    assert (loan["borrower"], loan["lender"], loan["kind"], loan["amount"]) == ("nlp", "cv", "gpu", 4_000)


@only_double
def test_metrics_are_read_by_prometheus(api: Api, service: ServiceDouble) -> None:
    api.submit()
    answer = api("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (queue,) = found["raysched_queue_length"].samples
    assert (queue.value, queue.labels) == (1.0, {"share": 'n"l\\p\n'})
    (ticks,) = found["raysched_ticks"].samples
    assert (ticks.name, ticks.value, found["raysched_ticks"].type) == ("raysched_ticks_total", 3.0, "counter")


def test_the_pure_text_says_the_same(api: Api, service: AnyService) -> None:
    def read(text: str) -> list[tuple[str, dict[str, str], float]]:
        found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return [(sample.name.removesuffix("_total"), sample.labels, sample.value) for sample in found]

    def steady(samples: list[tuple[str, dict[str, str], float]]) -> list[tuple[str, dict[str, str], float]]:
        return sorted((s for s in samples if not s[0].startswith("raysched_tick")), key=str)

    api.submit()
    shown = steady(read(api("GET", "/metrics").text))
    assert shown
    assert shown == steady(read(exposition(service.metrics())))


def test_the_description_covers_every_route_and_error(api: Api) -> None:
    document = api("GET", "/openapi.json").json()
    paths = document["paths"]
    assert {"/v1/jobs", "/v1/diagnose", "/v1/shares/{share}", "/v1/ledger", "/metrics", "/healthz"} <= paths.keys()
    operations = [operation for methods in paths.values() for operation in methods.values()]
    for operation in operations:
        schema = operation["responses"]["default"]["content"][MEDIA_TYPE]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}
        assert "422" not in operation["responses"]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))


def test_answers_are_described(api: Api) -> None:
    document = api("GET", "/openapi.json").json()
    listed = document["paths"]["/v1/jobs"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed["items"] == {"$ref": "#/components/schemas/JobView"}
    assert {"job", "user", "share", "state"} <= set(document["components"]["schemas"]["JobView"]["required"])
