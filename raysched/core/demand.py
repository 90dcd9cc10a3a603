"""What jobs have asked for lately, bundle by bundle: what packing expects to come next.

Counted from submissions alone, so that whoever reads the journal again expects the same. Older asks fade: at every
review beyond FULL asks all counts are halved."""

from typing import Final

from msgspec import Struct, field

from raysched.core.model import Bundle, JobSpec
from raysched.core.units import MILLI

LEAST: Final = 200  # asks before anything is expected: with fewer, packing is by best fit
FULL: Final = 4_000
TYPICAL_PERCENT: Final = 95  # of all asks are covered by the typical ones; rarer ones are left out
MOST_OF_ONE: Final = 64  # one gang of many equal bundles is no reason to expect only its like


class Wanted(Struct, frozen=True, order=True, gc=False):
    """What bundles ask that a packer has to weigh. `model` "": any."""

    gpu_milli: int
    cpu_milli: int
    model: str


class Typical(Struct, frozen=True, gc=False):
    """A kind of ask, and how many of `Demand.total` it stands for."""

    wanted: Wanted
    count: int


class Demand(Struct):
    """`typical` is renewed at reviews only; `edition` counts them, 0 before the first."""

    counts: dict[Wanted, int] = field(default_factory=dict)
    total: int = 0
    review_at: int = LEAST
    edition: int = 0
    typical: tuple[Typical, ...] = ()

    def add(self, spec: JobSpec) -> None:
        """Count what a new job asks for."""
        for bundle in spec.bundles:
            wanted = Wanted(bundle.gpu_milli, bundle.cpu_milli, (spec.model or "") if bundle.gpu_milli else "")
            times = min(bundle.count, MOST_OF_ONE)
            self.counts[wanted] = self.counts.get(wanted, 0) + times
            self.total += times
        if self.total >= self.review_at:
            self._review()

    def _review(self) -> None:
        found: list[Typical] = []
        covered = 0
        for count, wanted in sorted(((count, wanted) for wanted, count in self.counts.items()), reverse=True):
            if covered * 100 >= TYPICAL_PERCENT * self.total:
                break
            found.append(Typical(wanted, count))
            covered += count
        self.typical, self.edition = tuple(found), self.edition + 1
        if self.total > FULL:
            self.counts = {wanted: count // 2 for wanted, count in self.counts.items() if count > 1}
            self.total = sum(self.counts.values())
        self.review_at = self.total + max(LEAST, self.total // 4)

    def served_by(self, model: str | None) -> list[Typical]:
        """The typical asks for GPUs that GPUs of `model` may serve."""
        return [each for each in self.typical if each.wanted.gpu_milli and each.wanted.model in ("", model)]

    def is_simple(self, model: str | None, cores_milli: int) -> bool:
        """Whether best fit does as well on nodes with at least so many cores per GPU: nothing is known yet, or whole
        GPUs alone are asked for, and GPUs run out before cores do."""
        return all(
            each.wanted.gpu_milli >= MILLI and each.wanted.cpu_milli * MILLI <= cores_milli * each.wanted.gpu_milli
            for each in self.served_by(model)
        )


def wanted_of(bundle: Bundle) -> tuple[int, int, int, tuple[tuple[str, int], ...]]:
    """What decides where one bundle fits: GPU, cores, memory, attachables."""
    attach = tuple(sorted(bundle.attach.items())) if bundle.attach else ()
    return (bundle.gpu_milli, bundle.cpu_milli, bundle.memory_bytes, attach)
