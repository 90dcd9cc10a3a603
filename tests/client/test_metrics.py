"""Samples of the scheduler as Prometheus text, and as gauges that forget what is gone."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raysched.metrics import Gauges, exposition, families, metric_name


def sample(name: str, value: float, kind: str = "gauge", **labels: str) -> dict[str, object]:
    return {"name": name, "labels": labels, "value": value, "kind": kind}


def test_samples_of_one_name_are_one_family() -> None:
    found = families([sample("b", 1, share="y"), sample("a", 1), sample("b", 2, share="x"), sample("b", 3, user="u")])
    assert [family.name for family in found] == ["a", "b"]
    assert found[1].label_names == ("share", "user")
    assert found[1].samples == ((("", "u"), 3.0), (("x", ""), 2.0), (("y", ""), 1.0))


def test_text_is_read_back_as_it_was() -> None:
    given = [
        sample("queue", 3, share='q"uo\\te\nline'),
        sample("ticks_total", 2**40, "counter"),
        sample("age", 0.125),
        sample("limit", math.inf),
    ]
    found = {f.name: f for f in text_string_to_metric_families(exposition(given))}
    assert found["queue"].samples[0].labels == {"share": 'q"uo\\te\nline'}
    assert found["ticks"].samples[0].value == 2**40
    assert (found["age"].samples[0].value, found["limit"].samples[0].value) == (0.125, math.inf)


@pytest.mark.parametrize(("name", "clean"), [("a.b-c", "a_b_c"), ("9lives", "_9lives"), ("gpu:H100", "gpu_H100")])
def test_names_are_made_acceptable(name: str, clean: str) -> None:
    assert metric_name(name) == clean


class Shown:
    """A gauge that remembers what it shows."""

    def __init__(self) -> None:
        self.values: dict[tuple[tuple[str, str], ...], float] = {}

    def set(self, value: float, tags: dict[str, str] | None = None) -> None:
        self.values[tuple(sorted((tags or {}).items()))] = value


def test_a_series_that_is_gone_is_set_to_zero() -> None:
    made: dict[str, Shown] = {}

    def make(name: str, text: str, label_names: tuple[str, ...]) -> Shown:
        return made.setdefault(name, Shown())

    gauges = Gauges(make)
    gauges.publish([sample("used", 8, share="nlp"), sample("used", 4, share="cv")])
    gauges.publish([sample("used", 2, share="nlp")])
    assert made["used"].values == {(("share", "nlp"),): 2.0, (("share", "cv"),): 0.0}
