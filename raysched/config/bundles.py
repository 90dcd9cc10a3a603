"""Bundles as people write them: `{gpu: 8, cpu: 96, memory: 512Gi, disks: 2, count: 4}`."""

from typing import Annotated, Final

from pydantic import PlainValidator

from raysched.config.fields import MOST, checked_kind, each_in, each_of, read_amount
from raysched.config.problems import shown
from raysched.core.model import Bundle
from raysched.core.units import CPU, GPU, MEMORY, MILLI, MODEL_PREFIX

MAX_TOTAL: Final = 2**62  # amounts of a whole gang stay below this: sums of a few still fit 64 bits


def read_bundle(given: object) -> Bundle:
    """One bundle: gpu, cpu, memory, count, `attach: {…}` or attachables by name. Raises ValueError."""
    if not isinstance(given, dict):
        raise ValueError(f"must be a mapping such as {{gpu: 8, cpu: 96, memory: 512Gi}}, got {shown(given)}")
    parts = each_of(given, _bundle_part)
    count = parts.pop("count", {}).get("count", 1)
    amounts = {kind: amount for part in parts.values() for kind, amount in part.items() if amount}
    if not amounts:
        raise ValueError("asks for nothing")
    gpu, cpu, memory = (amounts.pop(kind, 0) for kind in (GPU, CPU, MEMORY))
    return Bundle(gpu, cpu, memory, amounts, count)


def _bundle_part(key: str, given: object) -> dict[str, int]:
    """What one key of a bundle gives; `attach` gives several amounts."""
    if key == "attach":
        return _attached(given)
    if key == "count":
        return {key: read_count(given)}
    return {key: _bundle_amount(key, given)}


def read_count(given: object) -> int:
    """How many times: a whole number, at least 1."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST:
        raise ValueError(f"must be a whole number from 1 to {MOST}, got {shown(given)}")
    return given


def _bundle_amount(kind: str, given: object) -> int:
    if kind.startswith(MODEL_PREFIX):
        raise ValueError("a bundle asks for `gpu`; the job names the `model`")
    amount = read_amount(checked_kind(kind), given)
    if kind == GPU and amount > MILLI and amount % MILLI:
        raise ValueError(f"must be a whole number or below 1, got {shown(given)}")
    return amount


def _attached(given: object) -> dict[str, int]:
    def amount(kind: str, value: object) -> int:
        if kind in (GPU, CPU, MEMORY) or kind.startswith(MODEL_PREFIX):
            raise ValueError("is a key of its own, not an attachable")
        return read_amount(checked_kind(kind), value)

    if not isinstance(given, dict):
        raise ValueError(f"must be a mapping of attachables, got {shown(given)}")
    return each_of(given, amount)


def read_bundles(given: object) -> list[Bundle]:
    """A list of bundles, at least one. Raises ValueError."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"must be a list of bundles, got {shown(given)}")
    if not given:
        raise ValueError("must name at least one bundle")
    return each_in(given, read_bundle)


Bundles = Annotated[list[Bundle], PlainValidator(read_bundles)]
