"""What a node has left, device by device. GPU ids are predicted here and corrected when Ray reports the true ones."""

from msgspec import Struct, field

from raysched.core.model import Bundle, JobId, NodeSpec, PlacedBundle
from raysched.core.units import MILLI, Amounts


class Hold(Struct):
    """What one entry of a placement holds of a node's devices; `reported` once Ray has named them."""

    job: JobId
    devices: tuple[int, ...]
    milli: int
    reported: bool = False


class Room(Struct):
    """Free amounts of one node. `devices` are thousandths left per GPU index; a lost GPU's are still counted, since
    the node is then suspect as a whole."""

    cpu_milli: int
    memory_bytes: int
    attach: dict[str, int]
    devices: list[int]
    whole: int
    gpu_milli: int
    holds: list[Hold] = field(default_factory=list)

    @classmethod
    def of(cls, spec: NodeSpec) -> "Room":
        """An empty node."""
        return cls(spec.cpu_milli, spec.memory_bytes, dict(spec.attach), [MILLI] * spec.gpu, spec.gpu, spec.gpu * MILLI)

    def free(self, model: str | None) -> Amounts:
        """What is left, as a vector."""
        return Bundle(self.gpu_milli, self.cpu_milli, self.memory_bytes, self.attach).amounts(model)

    def fits(self, bundle: Bundle) -> int:
        """How many of `bundle` fit now; for a bundle that asks nothing, a large number."""
        count = 1 << 30
        if bundle.gpu_milli:
            whole = bundle.whole_gpus
            count = self.whole // whole if whole else sum(left // bundle.gpu_milli for left in self.devices)
        if bundle.cpu_milli:
            count = min(count, self.cpu_milli // bundle.cpu_milli)
        if bundle.memory_bytes:
            count = min(count, self.memory_bytes // bundle.memory_bytes)
        for kind, amount in bundle.attach.items():
            if amount:
                count = min(count, self.attach.get(kind, 0) // amount)
        return max(0, count)

    def pick(self, bundle: Bundle, count: int) -> tuple[int, ...]:
        """The devices Ray will choose for `count` whole-GPU bundles, or for one fraction: whole from the lowest free
        index up, a fraction on the fullest device that fits. The caller has checked that they fit."""
        if bundle.is_fraction:
            fitting = [(left, index) for index, left in enumerate(self.devices) if left >= bundle.gpu_milli]
            return (min(fitting)[1],)
        free = [index for index, left in enumerate(self.devices) if left == MILLI]
        return tuple(free[: bundle.whole_gpus * count])

    def take(self, job: JobId, placed: PlacedBundle, bundle: Bundle) -> None:
        """Hold one entry of a placement. Asserts that it fits: a plan that overbooks a node is a bug."""
        if placed.devices:
            self._devices(placed.devices, -placed.milli)
            self.holds.append(Hold(job, placed.devices, placed.milli))
        self._rest(bundle, -placed.count)

    def give(self, job: JobId, placed: PlacedBundle, bundle: Bundle) -> None:
        """Give one entry of `job` back, whatever its devices turned out to be."""
        if placed.devices:
            size = len(placed.devices)
            hold = next(
                (h for h in self.holds if h.job == job and h.devices == placed.devices and h.milli == placed.milli),
                None,
            ) or next(h for h in self.holds if h.job == job and len(h.devices) == size and h.milli == placed.milli)
            self.holds.remove(hold)
            self._devices(hold.devices, hold.milli)
        self._rest(bundle, placed.count)

    def _devices(self, devices: tuple[int, ...], milli: int) -> None:
        for index in devices:
            before = self.devices[index]
            after = before + milli
            assert 0 <= after <= MILLI, f"GPU {index} would have {after} of {MILLI} thousandths left"
            self.devices[index] = after
            self.whole += (after == MILLI) - (before == MILLI)
        self.gpu_milli += milli * len(devices)

    def _rest(self, bundle: Bundle, count: int) -> None:
        self.cpu_milli += bundle.cpu_milli * count
        self.memory_bytes += bundle.memory_bytes * count
        for kind, amount in bundle.attach.items():
            self.attach[kind] = self.attach.get(kind, 0) + amount * count
        assert self.cpu_milli >= 0 and self.memory_bytes >= 0, "a node's CPU or memory was overbooked"

    def correct(self, job: JobId, predicted: PlacedBundle, true: tuple[int, ...]) -> None:
        """Replace predicted device ids by the true ones. Jobs whose own ids are only predicted make way: they get
        what this job was predicted to have."""
        mine = (h for h in self.holds if h.job == job and h.devices == predicted.devices and not h.reported)
        hold = next(mine, None)
        if hold is None or len(true) != len(hold.devices):
            return
        hold.reported = True
        if hold.devices == true:
            return
        pairs = dict(zip(sorted(set(true) - set(hold.devices)), sorted(set(hold.devices) - set(true)), strict=False))
        self._devices(hold.devices, hold.milli)
        hold.devices = true
        for other in self.holds:
            if other is not hold and not other.reported and other.milli == MILLI and set(other.devices) & set(pairs):
                self._devices(other.devices, other.milli)
                other.devices = tuple(sorted(pairs.get(index, index) for index in other.devices))
                self._devices_unchecked(other.devices, -other.milli)
        self._devices_unchecked(true, -hold.milli)

    def _devices_unchecked(self, devices: tuple[int, ...], milli: int) -> None:
        """Like `_devices`, for what Ray has really done: it may contradict a prediction of a fraction."""
        for index in devices:
            before = self.devices[index]
            self.devices[index] = before + milli
            self.whole += (self.devices[index] == MILLI) - (before == MILLI)
        self.gpu_milli += milli * len(devices)
