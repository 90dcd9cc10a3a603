"""What a node has left, device by device. GPU ids are predicted here and corrected when Ray reports the true ones."""

from msgspec import Struct, field

from raysched.core.model import Bundle, JobId, NodeSpec, PlacedBundle
from raysched.core.units import MILLI, Amounts


class Hold(Struct, gc=False):
    """What one entry of a placement holds of a node's devices; `reported` once Ray has named them."""

    job: JobId
    devices: tuple[int, ...]
    milli: int
    reported: bool = False


class Room(Struct, gc=False):
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
            # A report may leave devices free that the sum does not have, until the other reports come.
            free = min(self.whole, self.gpu_milli // MILLI)
            count = free // whole if whole else sum(left // bundle.gpu_milli for left in self.devices)
        if bundle.cpu_milli:
            count = min(count, self.cpu_milli // bundle.cpu_milli)
        if bundle.memory_bytes:
            count = min(count, self.memory_bytes // bundle.memory_bytes)
        for kind, amount in bundle.attach.items():
            if amount:
                count = min(count, self.attach.get(kind, 0) // amount)
        return max(0, count)

    def parts(self) -> tuple[tuple[int, int], ...]:
        """Of each partly used device, what is left and how many GPUs are wholly free beside it."""
        if self.gpu_milli == self.whole * MILLI:
            return ()
        return tuple(sorted({(left, self.whole) for left in self.devices if 0 < left < MILLI}))

    def pick(self, bundle: Bundle, count: int) -> tuple[int, ...]:
        """The devices Ray will choose for `count` whole-GPU bundles, or for one fraction: whole from the lowest free
        index up, a fraction on the fullest device that fits. The caller has checked that they fit."""
        if bundle.is_fraction:
            fitting = [(left, index) for index, left in enumerate(self.devices) if left >= bundle.gpu_milli]
            return (min(fitting)[1],)
        free = [index for index, left in enumerate(self.devices) if left == MILLI]
        return tuple(free[: bundle.whole_gpus * count])

    def take(self, job: JobId, placed: PlacedBundle, bundle: Bundle) -> None:
        """Hold one entry of a placement. Asserts that the node has that much left: a plan that overbooks a node is a
        bug. Which devices is only predicted, and gives way to what Ray has reported meanwhile."""
        if placed.devices:
            self.holds.append(Hold(job, placed.devices, placed.milli))
            self._devices(placed.devices, -placed.milli)
            assert self.gpu_milli >= 0, f"a node's GPUs were overbooked by {-self.gpu_milli} thousandths"
            self._make_way()
        self._rest(bundle, -placed.count)

    def give(self, job: JobId, placed: PlacedBundle, bundle: Bundle) -> "tuple[int, Hold] | None":
        """Give one entry of `job` back, whatever its devices turned out to be. Returns what it held and where in
        `holds` that stood, for `undo_give`."""
        gave: tuple[int, Hold] | None = None
        if placed.devices:
            hold = self._hold_of(job, placed, reported_too=True)
            assert hold is not None, f"job {job} holds no {len(placed.devices)} devices here"
            gave = (self.holds.index(hold), hold)
            del self.holds[gave[0]]
            self._devices(hold.devices, hold.milli)
        self._rest(bundle, placed.count)
        return gave

    def undo_give(self, gave: "tuple[int, Hold] | None", placed: PlacedBundle, bundle: Bundle) -> None:
        """Take back what `give` gave, as it was."""
        if gave is not None:
            at, hold = gave
            self.holds.insert(at, hold)
            self._devices(hold.devices, -hold.milli)
        self._rest(bundle, -placed.count)

    def correct(self, job: JobId, predicted: PlacedBundle, true: tuple[int, ...]) -> None:
        """Replace predicted device ids by the true ones. Jobs whose own ids are only predicted make way."""
        hold = self._hold_of(job, predicted, reported_too=False)
        if hold is None or len(true) != len(hold.devices):
            return
        self._devices(hold.devices, hold.milli)
        hold.devices, hold.reported = true, True
        self._devices(true, -hold.milli)
        self._make_way()

    def _hold_of(self, job: JobId, placed: PlacedBundle, reported_too: bool) -> Hold | None:
        """The hold of a placement's entry: by its devices, or if those had to make way, by its size."""
        size = len(placed.devices)
        mine = [h for h in self.holds if h.job == job and h.milli == placed.milli and len(h.devices) == size]
        mine = [hold for hold in mine if reported_too or not hold.reported]
        return next((hold for hold in mine if hold.devices == placed.devices), next(iter(mine), None))

    def _devices(self, devices: tuple[int, ...], milli: int) -> None:
        """Count devices up or down. Below zero until predictions have made way for a report."""
        for index in devices:
            before = self.devices[index]
            after = before + milli
            assert after <= MILLI, f"GPU {index} would have {after} of {MILLI} thousandths left"
            self.devices[index] = after
            self.whole += (after == MILLI) - (before == MILLI)
        self.gpu_milli += milli * len(devices)

    def _make_way(self) -> None:
        """Where a device is held for more than it has, pick predicted ids anew: those that clash, or if that is not
        enough all of them. What still clashes then is settled when Ray reports it."""
        if min(self.devices) >= 0:
            return
        guesses = [hold for hold in self.holds if not hold.reported]
        clashing = [hold for hold in guesses if any(self.devices[index] < 0 for index in hold.devices)]
        if not self._pick_anew(clashing):
            self._pick_anew(guesses)

    def _pick_anew(self, holds: list[Hold]) -> bool:
        """Other devices for these holds, whole ones first; False, and nothing changed, if they do not fit."""
        left = list(self.devices)
        for hold in holds:
            for index in hold.devices:
                left[index] += hold.milli
        chosen: list[tuple[Hold, tuple[int, ...]]] = []
        for hold in sorted(holds, key=lambda h: (-h.milli, -len(h.devices))):
            fitting = [index for index, n in enumerate(left) if n >= hold.milli]
            fitting.sort(key=lambda index: (left[index], index not in hold.devices, index))
            devices = tuple(sorted(fitting[: len(hold.devices)]))
            if len(devices) < len(hold.devices):
                return False
            for index in devices:
                left[index] -= hold.milli
            chosen.append((hold, devices))
        for hold, devices in chosen:
            self._devices(hold.devices, hold.milli)
            hold.devices = devices
        for hold, devices in chosen:
            self._devices(devices, -hold.milli)
        return min(self.devices) >= 0

    def _rest(self, bundle: Bundle, count: int) -> None:
        self.cpu_milli += bundle.cpu_milli * count
        self.memory_bytes += bundle.memory_bytes * count
        for kind, amount in bundle.attach.items():
            self.attach[kind] = self.attach.get(kind, 0) + amount * count
        assert self.cpu_milli >= 0 and self.memory_bytes >= 0, "a node's CPU or memory was overbooked"

    def copied(self) -> "Room":
        """A copy that shares nothing with this room."""
        holds = [Hold(hold.job, hold.devices, hold.milli, hold.reported) for hold in self.holds]
        return Room(
            self.cpu_milli, self.memory_bytes, dict(self.attach), list(self.devices), self.whole, self.gpu_milli, holds
        )
