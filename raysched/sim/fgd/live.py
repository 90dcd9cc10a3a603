"""The experiment with the placement that raysched really uses (core/placement.py), and with the rules it keeps there.

A pod that may use several models tries them one after the other, by name, as queues of pools and models are tried; pods
without GPUs are spread; a share goes to the device that Ray would choose. The workload is expected, as policies of the
experiment may know it. Nothing here scores: a pod is one job of one bundle."""

from collections.abc import Sequence

from raysched.core import events as ev
from raysched.core.model import Bundle, JobId, JobSpec, NodeId, NodeSpec, PoolId, ShareId, UserId
from raysched.core.placement import Ground, Placed, place
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.core.units import MILLI
from raysched.sim.fgd.workload import Shape, Workload
from raysched.sim.traces.openb import OpenbNode

LIVE = "live"
POOL = PoolId("openb")
MIB = 1 << 20


class Live:
    """The state of one run. Nodes are named in the order given, in which ties are decided."""

    def __init__(self, nodes: Sequence[OpenbNode], workload: Workload) -> None:
        self.shapes, self.state = workload.shapes, State()
        self.models = sorted({node.model for node in nodes})
        self.placed = 0
        for number, node in enumerate(nodes):
            self._join(NodeId(f"n{number:05d}"), node)
        for index in workload.pods:
            self.state.demand.add(self._spec(self.shapes[index]))

    def _join(self, name: NodeId, node: OpenbNode) -> None:
        spec = NodeSpec(node.gpus, node.model, node.cpu_milli, node.memory_mib * MIB)
        apply(self.state, ev.NodeJoined(at_ms=0, node=name, ray_id=name, spec=spec, pool=POOL))
        apply(self.state, ev.NodeFresh(at_ms=0, node=name))
        apply(self.state, ev.HealthChanged(at_ms=0, node=name, health="healthy", why="of the trace"))

    def _spec(self, shape: Shape) -> JobSpec:
        model = shape.models[0] if len(shape.models) == 1 else None
        return JobSpec(JobId("pod"), UserId("openb"), ShareId("openb"), (_bundle(shape),), model=model)

    def place(self, index: int) -> bool:
        """Place one pod of a shape; False when no node fits."""
        shape = self.shapes[index]
        bundles = (_bundle(shape),)
        for model in [model for model in self.models if shape.allows(model)] if shape.gpus else [None]:
            found = place(self.state, Ground(POOL, model), bundles)
            if isinstance(found, Placed):
                self.placed += 1
                self.state.hold(JobId(f"pod{self.placed}"), found.placement, bundles)
                return True
        return False


def _bundle(shape: Shape) -> Bundle:
    gpu_milli = shape.gpu_milli if shape.is_share else shape.gpus * MILLI
    return Bundle(gpu_milli, shape.cpu_milli, shape.memory_mib * MIB)
