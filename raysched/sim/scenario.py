"""Scenarios: a timeline of actions and expectations under a virtual clock, run by the real service, loop and core.

The values a scenario file becomes; scenario_reading.py reads it, scenario_run.py runs it. Beyond the design page:

    timeline times      offsets or ISO times, never falling
    set_group           {group, members}; cordon {node, reason}, uncordon {node}, repool_node {node, pool}
    by                  every action that somebody does takes `by`, the calling user (default: a cluster admin)
    jobs                also priority, share, pool, model, nodes; of a refused submission: rejected
    usage.users         `share` may be left out: then it is the sum over all shares
    loans               a `pool` may be named; compared are the kinds that the list names (default gpu)
    pools               also contention
    admission           also scope, kind (default gpu: which rows the numbers are of), and the words of the record
    reservations        also drawn
    findings            also numbers; an empty list means that there are none
    shares              {NAME: {state, owned, used, borrowed, lent}}
    quota               {USER: {share, kinds: {KIND: {used, limit, idle}}}}: the personal overview; null = no limit
    alerts              [{alert, subject, contains}]; an empty list means that none is open"""

from typing import Any

from msgspec import Struct, field

from raysched.config import ClusterConfig
from raysched.core.model import NodeSpec


class NodeGroup(Struct, frozen=True):
    """`count` equal nodes that join a pool; their names are `names`."""

    pool: str
    spec: NodeSpec
    names: tuple[str, ...]
    reporting: bool = True


class Step(Struct, frozen=True):
    """One entry of the timeline. `keys` are what the entry gives for `verb`; `parsed` is the same, read. `wrong`: why
    the action can only fail, for one whose error the next entry expects."""

    number: int
    line: int | None
    at_ms: int
    verb: str
    keys: dict[str, Any]
    parsed: Any = None
    wrong: str | None = None


class Scenario(Struct, frozen=True):
    """A whole scenario, valid as far as a file can be."""

    file: str
    name: str
    config: ClusterConfig
    start_ms: int
    nodes: tuple[NodeGroup, ...] = ()
    steps: tuple[Step, ...] = field(default_factory=tuple)
