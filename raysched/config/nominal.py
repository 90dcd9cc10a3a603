"""Nominal quota as it is written: amounts, or an instance size times a count (semantics 3.1, 3.2)."""

import re
from typing import Final

from msgspec import Struct

from raysched.config.problems import Path, Problems, nearest
from raysched.config.schema import SizeKeys
from raysched.config.values import ClusterConfig
from raysched.core.model import Instances, NodeSpec, PoolId
from raysched.core.units import CPU, GPU, MEMORY, MILLI, MODEL_PREFIX, Amounts, model_kind

SIZES: Final = (1, 2, 4, 8)  # cards of one instance (semantics 3.2)

_SIZE = re.compile(r"^(.+)x(\d{1,4})$")


class Nominal(Struct):
    """What a share owns: amounts in every pool, and the instances where it was written so."""

    amounts: dict[PoolId, Amounts]
    instances: dict[PoolId, Instances]


def read_nominal(keys: dict[str, SizeKeys | Amounts], config: ClusterConfig, problems: Problems, at: Path) -> Nominal:
    """The amounts of `keys`, which stand at `at`; what is wrong goes to `problems`."""
    found = Nominal({}, {})
    for name, given in keys.items():
        pool, path = PoolId(name), (*at, name)
        if not _may_own_in(name, config, problems, path):
            continue
        if isinstance(given, SizeKeys):
            instances = _instances(given, config, problems, path)
            if instances is not None:
                found.instances[pool] = instances
                found.amounts[pool] = {k: v * instances.count for k, v in instances.per_instance.items()}
        else:
            check_kinds(given, config, problems, path)
            found.amounts[pool] = with_gpu(given)
    return found


def with_gpu(amounts: Amounts) -> Amounts:
    """`amounts` with `gpu` in it: not listed, it is the sum of the listed models, else none (semantics 3.1)."""
    if GPU in amounts:
        return amounts
    return {GPU: sum(v for k, v in amounts.items() if k.startswith(MODEL_PREFIX)), **amounts}


def check_kinds(amounts: Amounts, config: ClusterConfig, problems: Problems, at: Path) -> None:
    """Every kind must be one that a node spec has; without node specs nothing is known and nothing is refused."""
    if not config.node_specs:
        return
    known = {GPU, CPU, MEMORY}
    for spec in config.node_specs.values():
        known.update(spec.attach)
        if spec.gpu_model is not None:
            known.add(model_kind(spec.gpu_model))
    for kind in amounts:
        if kind not in known:
            problems.add((*at, kind), "no node spec has this resource kind" + nearest(kind, known))


def _may_own_in(name: str, config: ClusterConfig, problems: Problems, at: Path) -> bool:
    pool = next((pool for pool in config.pools if pool.pool == name), None)
    if pool is None:
        problems.add(at, "there is no such pool" + nearest(name, (pool.pool for pool in config.pools)))
    elif pool.role == "standby":
        problems.add(at, "is a standby pool: nothing is placed there, so nobody can own quota in it")
    else:
        return True
    return False


def _instances(given: SizeKeys, config: ClusterConfig, problems: Problems, at: Path) -> Instances | None:
    where = (*at, "size")
    match = _SIZE.match(given.size)
    if match is None or int(match[2]) not in SIZES:
        wanted = ", ".join(str(size) for size in SIZES)
        problems.add(where, f"must be <node spec or GPU model>x<cards> with {wanted} cards, got {given.size[:60]!r}")
        return None
    spec = _spec_of(match[1], int(match[2]), config, problems, where)
    if spec is None:
        return None
    per_instance = _part_of(spec, int(match[2]))
    if any(amount * given.count >= 2**62 for amount in per_instance.values()):
        problems.add((*at, "count"), "is too large")
        return None
    return Instances(given.size, int(match[2]), given.count, per_instance)


def _part_of(spec: NodeSpec, cards: int) -> Amounts:
    """What `cards` cards bring along: their part of the node's cores and memory, rounded down."""
    part = {GPU: cards * MILLI, CPU: spec.cpu_milli * cards // spec.gpu, MEMORY: spec.memory_bytes * cards // spec.gpu}
    return {kind: amount for kind, amount in part.items() if amount}


def _spec_of(name: str, cards: int, config: ClusterConfig, problems: Problems, at: Path) -> NodeSpec | None:
    named = _named(name, config.node_specs)
    if not named:
        known = {*config.node_specs, *(s.gpu_model.lower() for s in config.node_specs.values() if s.gpu_model)}
        problems.add(at, f"no node spec and no GPU model is called {name!r}" + nearest(name, known))
        return None
    fitting = {spec_name: spec for spec_name, spec in named.items() if spec.gpu >= cards}
    if not fitting:
        most = max(spec.gpu for spec in named.values())
        problems.add(at, f"{cards} cards do not fit a node of {', '.join(sorted(named))}, which has {most}")
        return None
    parts = [_part_of(spec, cards) for spec in fitting.values()]
    if any(part != parts[0] for part in parts):
        problems.add(at, f"could be cut from {', '.join(sorted(fitting))}; name one, e.g. {min(fitting)}x{cards}")
        return None
    return next(iter(fitting.values()))


def _named(name: str, specs: dict[str, NodeSpec]) -> dict[str, NodeSpec]:
    """The specs that `name` means: the one of that name, else those of that model or called `<name>x…`."""
    if name in specs:
        return {name: specs[name]}
    low = name.lower()
    return {
        spec_name: spec
        for spec_name, spec in specs.items()
        if spec.gpu and ((spec.gpu_model or "").lower() == low or spec_name.lower().startswith(low + "x"))
    }
