"""Steps tried on the real state and books, and taken back: which of them start a job, and in which order.

Whoever carries the steps out does so one by one, with plans in between; what is found here holds then too."""

from collections.abc import Callable
from itertools import combinations, permutations

from msgspec import Struct

from raysched.core import events as ev
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.model import JobId
from raysched.core.plan import plan
from raysched.core.state import Job, State
from raysched.core.steps import Step

Undo = Callable[[], None]


class Try(Struct, frozen=True):
    """A step, and how it is done here: `do` returns the way back, or None when it cannot be done. `slow`: a running
    job must end first."""

    step: Step
    do: Callable[[], Undo | None]
    slow: bool = False


class Trials:
    """Steps taken for one waiting job. `back(0)` leaves state and books as they were."""

    def __init__(self, state: State, ledger: Ledger, job: Job, now_ms: int) -> None:
        self.state, self.ledger, self.job, self.now_ms = state, ledger, job, now_ms
        self.draft = Draft(state, ledger)
        self.taken: list[tuple[Try, Undo]] = []

    def admitted(self) -> set[JobId]:
        """Who would start with the next plan."""
        made = plan(self.state, self.ledger, self.now_ms)
        return {event.job for event in made.events if isinstance(event, ev.Admitted)}

    def starts(self) -> bool:
        """Whether the job would."""
        return self.job.job in self.admitted()

    def take(self, *tries: Try) -> bool:
        """All of them, or none."""
        mark = len(self.taken)
        for each in tries:
            undo = each.do()
            if undo is None:
                self.back(mark)
                return False
            self.taken.append((each, undo))
        return True

    def back(self, mark: int) -> None:
        """Take steps back, last first, until `mark` are left."""
        while len(self.taken) > mark:
            self.taken.pop()[1]()

    def needed(self) -> list[Try]:
        """The steps taken without those that it does not take: a later one may do the work of an earlier."""
        kept = [each for each, _ in self.taken]
        for each in tuple(kept):
            rest = [other for other in kept if other is not each]
            self.back(0)
            if self.take(*rest) and self.starts():
                kept = rest
        return kept

    def ordered(self, tries: list[Try]) -> tuple[Try, ...]:
        """The steps in an order in which none but the last starts a job: they are taken one by one, and what one makes
        free must not go to somebody else before the next. Empty when there is no such order."""
        self.back(0)
        before = self.admitted()
        slow = tuple(each for each in tries if each.slow)
        quick = sorted((each for each in tries if not each.slow), key=lambda each: each.step.method == "admin")
        return next(((*order, *slow) for order in permutations(quick) if self._is_quiet(order, slow, before)), ())

    def _is_quiet(self, quick: tuple[Try, ...], slow: tuple[Try, ...], before: set[JobId]) -> bool:
        self.back(0)
        for number, each in enumerate(quick, 1):
            if not self.take(each) or ((slow or number < len(quick)) and self.admitted() - before):
                return False
        mark = len(self.taken)
        # Jobs that are told to end do so each in its own time.
        for part in (part for size in range(1, len(slow)) for part in combinations(slow, size)):
            if not self.take(*part) or self.admitted() - before:
                return False
            self.back(mark)
        return self.take(*slow) and self.starts()
