"""A plan in the making: claims and releases tried on the real state and books, with mark and rollback.

A draft borrows the state and the ledger between two events. So a plan sees the effect of its own decisions without a
copy of anything. It ends with `rollback`, and both are as they were; or with `keep`, when just what it tried was
posted: then folding the entries and events finds charges and room as they say."""

from collections.abc import Callable
from functools import partial

from raysched.core.accounts import Ask
from raysched.core.ledger import Ledger
from raysched.core.model import Bundle, JobId, Placement, ReservationId
from raysched.core.state import State
from raysched.core.units import Amounts, add_into


class Draft:
    """Scratch capacity and usage over one state and one ledger."""

    def __init__(self, state: State, ledger: Ledger) -> None:
        self.state, self.ledger = state, ledger
        self._log: list[Callable[[], None]] = []
        self.moved: set[JobId] = set()

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._log)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since `mark`, last first."""
        while len(self._log) > mark:
            self._log.pop()()

    def keep(self) -> None:
        """Leave everything as it was tried; `moved` are the jobs whose events will say so."""
        self._log.clear()
        self.state.ahead |= self.moved

    def charge(self, ask: Ask) -> None:
        """Charge a request that has been checked."""
        self.ledger.quota.charge(ask, check=False)
        self._log.append(partial(self.ledger.quota.uncharge, ask))

    def uncharge(self, ask: Ask) -> None:
        """Take a charge back."""
        self.ledger.quota.uncharge(ask)
        self._log.append(partial(self._charge, ask))

    def _charge(self, ask: Ask) -> None:
        self.ledger.quota.charge(ask, check=False)

    def hold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        """Take room on nodes."""
        state = self.state
        if _is_plain(state, job, placement):
            self._log.append(partial(self._unhold, job, placement, bundles))
        else:
            self._log.append(self._rooms(job, placement))
        state.hold(job, placement, bundles)

    def unhold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        """Give room on nodes back."""
        self._log.append(partial(self.state.rehold, job, self.state.unhold(job, placement, bundles)))

    def _unhold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        self.state.unhold(job, placement, bundles)

    def _rooms(self, job: JobId, placement: Placement) -> Callable[[], None]:
        """The way back to the rooms as they are now. Taking and giving alone would not do: which device ids are held,
        and whether Ray has reported them, is more than a placement says."""
        state, before = self.state, self.state.rooms(placement)
        held = {node for node in before if job in state.nodes[node].jobs}

        def back() -> None:
            for node in before:
                (state.nodes[node].jobs.add if node in held else state.nodes[node].jobs.discard)(job)
            state.restore(before)

        return back

    def draw(self, reservation: ReservationId, amounts: Amounts) -> None:
        """Draw on a reservation."""
        book = self.ledger.reservations.get(reservation)
        if book is None:
            return
        add_into(book.drawn, amounts)
        self._log.append(lambda: add_into(book.drawn, amounts, -1))

    def release(self, job: JobId) -> None:
        """Give back all that an active job holds."""
        claim = self.ledger.claims.get(job)
        if claim is not None:
            self.uncharge(claim.ask())
            if claim.reservation is not None:
                self.draw(claim.reservation, {kind: -amount for kind, amount in claim.draws.items()})
        found = self.state.jobs[job]
        self.unhold(job, found.placement, found.bundles)


def _is_plain(state: State, job: JobId, placement: Placement) -> bool:
    """Whether giving back is all it takes to undo this: the job holds nothing there, and nobody makes way for it."""
    for placed in placement:
        node = state.nodes[placed.node]
        if job in node.jobs:
            return False
        for index in placed.devices:
            if node.room.devices[index] < placed.milli:
                return False
    return True
