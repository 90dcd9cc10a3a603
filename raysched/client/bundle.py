"""Bundles as people write them: `Bundle(gpu=8, cpu=96, memory="1Ti", count=2)`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raysched.client.errors import BadSpec
from raysched.core import model, units

Quantity = int | float | str
_KEYS = ("gpu", "cpu", "memory", "count", "attach")


@dataclass(frozen=True)
class Bundle:
    """Resources that must be on one node, `count` times: GPUs (whole, or a part of one: 0.5, "500m"), cores, memory
    ("512Gi"), and countable attachables by name."""

    gpu: Quantity = 0
    cpu: Quantity = 0
    memory: Quantity = 0
    count: int = 1
    attach: Mapping[str, int] = field(default_factory=dict)

    def to_keys(self) -> dict[str, Any]:
        """The same with the keys of the configuration file. Raises BadSpec as `to_core` does."""
        self.to_core()
        asked = {"gpu": self.gpu, "cpu": self.cpu, "memory": self.memory, "count": self.count}
        return asked | ({"attach": dict(self.attach)} if self.attach else {})

    def to_core(self) -> model.Bundle:
        """The same in whole numbers. Raises BadSpec with the key that is wrong."""
        try:
            bundle = model.Bundle(
                gpu_milli=units.parse_amount(units.GPU, self.gpu),
                cpu_milli=units.parse_amount(units.CPU, self.cpu),
                memory_bytes=units.parse_amount(units.MEMORY, self.memory),
                attach={kind: units.parse_amount(kind, amount) for kind, amount in self.attach.items()},
                count=self.count,
            )
        except units.BadQuantity as error:
            raise BadSpec(str(error)) from error
        _check_shape(bundle)
        return bundle


def bundle_of(given: "Bundle | Mapping[str, Any]") -> Bundle:
    """A bundle from a mapping with the same keys. Raises BadSpec that names an unknown key."""
    if isinstance(given, Bundle):
        return given
    if not isinstance(given, Mapping):
        raise BadSpec(f"a bundle is a mapping such as {{gpu: 8, cpu: 96, memory: 1Ti}}, not {given!r}")
    for key in given:
        if key not in _KEYS:
            raise BadSpec(f"bundle: unknown key {key!r} (known: {', '.join(_KEYS)})")
    return Bundle(**given)


def _check_shape(bundle: model.Bundle) -> None:
    if isinstance(bundle.count, bool) or not isinstance(bundle.count, int) or bundle.count < 1:
        raise BadSpec(f"count: {bundle.count!r} is not a whole number of at least 1")
    if bundle.gpu_milli > units.MILLI and bundle.gpu_milli % units.MILLI:
        asked = units.format_amount(units.GPU, bundle.gpu_milli)
        raise BadSpec(f"gpu: {asked} in one bundle; want a whole number, or a part of one GPU below 1")
    if not bundle.amounts(None):
        raise BadSpec("a bundle that asks for nothing: give gpu, cpu or memory")
