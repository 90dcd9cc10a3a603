"""Metric samples brought into shape for Prometheus: a pure mapping, without a registry, a clock or Ray.

A sample is {"name", "labels", "value", "kind": "gauge" | "counter"}, as the service returns them; `help` may be there.
Samples of one name form a family. The text format is that of Prometheus, version 0.0.4."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

Sample = Mapping[str, Any]
LabelValues = tuple[str, ...]
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_]")


class Family(Struct, frozen=True):
    """All samples of one metric. `label_names` are sorted; a sample without one of them has it empty."""

    name: str
    kind: str
    help: str
    label_names: tuple[str, ...]
    samples: tuple[tuple[LabelValues, float], ...]


def families(samples: Iterable[Sample]) -> list[Family]:
    """The samples by name, in order of name and labels; of two with equal labels the later one stands."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        grouped.setdefault(metric_name(str(sample["name"])), []).append(sample)
    return [_family(name, found) for name, found in sorted(grouped.items())]


def exposition(samples: Iterable[Sample]) -> str:
    """The samples as Prometheus text."""
    return "".join(line + "\n" for family in families(samples) for line in _lines(family))


def metric_name(name: str) -> str:
    """A name Prometheus accepts: other characters become `_`, and a leading digit gets one before it."""
    clean = _BAD_NAME.sub("_", name)
    return "_" + clean if clean[:1].isdigit() else clean


class Gauge(Protocol):
    """What is needed of `ray.util.metrics.Gauge`."""

    def set(self, value: float, tags: dict[str, str] | None = None) -> object: ...


class Gauges:
    """Keeps one gauge per family up to date; `make(name, help, label_names)` makes one, e.g. Ray's.

    A gauge goes on showing its last value for ever, so a series that is no longer reported is set to zero once."""

    def __init__(self, make: Callable[[str, str, tuple[str, ...]], Gauge]) -> None:
        self._make = make
        self._gauges: dict[tuple[str, tuple[str, ...]], Gauge] = {}
        self._shown: set[tuple[str, tuple[str, ...], LabelValues]] = set()

    def publish(self, samples: Iterable[Sample]) -> None:
        """Set every gauge to the sample of now. Counters are published as gauges of their running total."""
        shown: set[tuple[str, tuple[str, ...], LabelValues]] = set()
        for family in families(samples):
            gauge = self._gauge(family)
            for values, value in family.samples:
                gauge.set(value, dict(zip(family.label_names, values, strict=True)))
                shown.add((family.name, family.label_names, values))
        for name, label_names, values in sorted(self._shown - shown):
            self._gauges[name, label_names].set(0.0, dict(zip(label_names, values, strict=True)))
        self._shown = shown

    def _gauge(self, family: Family) -> Gauge:
        key = (family.name, family.label_names)
        if key not in self._gauges:
            self._gauges[key] = self._make(family.name, family.help, family.label_names)
        return self._gauges[key]


def _family(name: str, samples: list[Sample]) -> Family:
    label_names = tuple(sorted({metric_name(str(label)) for sample in samples for label in sample.get("labels") or {}}))
    values: dict[LabelValues, float] = {}
    for sample in samples:
        labels = {metric_name(str(key)): str(value) for key, value in (sample.get("labels") or {}).items()}
        values[tuple(labels.get(label, "") for label in label_names)] = float(sample["value"])
    first = samples[0]
    kind = "counter" if first.get("kind") == "counter" else "gauge"
    text = str(first.get("help") or name.removeprefix("raysched_").replace("_", " "))
    return Family(name, kind, text, label_names, tuple(sorted(values.items())))


def _lines(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for values, value in family.samples:
        labels = ",".join(
            f'{name}="{_escaped(text, quotes=True)}"' for name, text in zip(family.label_names, values, strict=True)
        )
        yield f"{family.name}{{{labels}}} {_number(value)}" if labels else f"{family.name} {_number(value)}"


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**63 else repr(value)
