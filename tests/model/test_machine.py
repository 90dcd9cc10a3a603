"""A hypothesis state machine over the whole scheduler: anybody may do anything, in any order, and after every act the
books balance, no law is broken, and the journal tells the state that lives."""

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raysched.core.check import check
from raysched.sim.crash import CrashStep
from tests.model.histories import STEPS_OF_A_TICK
from tests.model.play import Play
from tests.model.worlds import world

N = st.integers(0, 15)
SEED = st.integers(0, 1 << 16)


class Machine(RuleBasedStateMachine):
    """Rules are the acts of a Play; hypothesis chooses, shrinks and replays them."""

    play: Play

    @initialize(seed=SEED)
    def begin(self, seed: int) -> None:
        self.play = Play(world(seed), seed)

    @rule(share=N, user=N, shape=N, count=N, priority=N, work=N, more=st.integers(0, 209))
    def submit(self, share: int, user: int, shape: int, count: int, priority: int, work: int, more: int) -> None:
        self.play.submit(share, user, shape, count, priority, work, more)

    @rule(share=N, shape=N, count=N)
    def submit_more(self, share: int, shape: int, count: int) -> None:
        self.play.submit(share, 1, shape, count, 0, 1, 1)

    @rule(number=N)
    def wait(self, number: int) -> None:
        self.play.wait(number)

    @rule(number=N)
    def wait_again(self, number: int) -> None:
        self.play.wait(number % 3)

    @rule(number=N, ok=st.booleans())
    def finish_or_fail(self, number: int, ok: bool) -> None:
        self.play.finish(number, ok)

    @rule(number=N)
    def cancel(self, number: int) -> None:
        self.play.cancel(number)

    @rule(number=N, priority=N)
    def change_priority(self, number: int, priority: int) -> None:
        self.play.prioritise(number, priority)

    @rule(number=N, value=st.booleans())
    def change_cross_pool(self, number: int, value: bool) -> None:
        self.play.cross_pool(number, value)

    @rule(number=N, share=N)
    def move(self, number: int, share: int) -> None:
        self.play.move(number, share)

    @rule(number=N, shape=N, count=N)
    def resize(self, number: int, shape: int, count: int) -> None:
        self.play.resize(number, shape, count)

    @rule(number=N, signal=N)
    def lose_node(self, number: int, signal: int) -> None:
        self.play.lose(number, signal)

    @rule(number=N)
    def silence_node(self, number: int) -> None:
        self.play.silence(number)

    @rule(number=N, repaired=st.booleans())
    def recover_node(self, number: int, repaired: bool) -> None:
        self.play.recover(number, repaired)

    @rule(number=N, what=N)
    def operate_node(self, number: int, what: int) -> None:
        self.play.operate(number, what)

    @rule(number=N, what=st.integers(0, 4), seed=SEED)
    def change_share(self, number: int, what: int, seed: int) -> None:
        """Cut or raise its quota, change its sharing or its limits, stop it, open it."""
        self.play.share(number, what, seed)

    @rule(number=N)
    def change_group(self, number: int) -> None:
        self.play.regroup(number)

    @rule(number=N, gpus=N, start_s=st.integers(0, 200), for_s=st.integers(0, 300))
    def reserve(self, number: int, gpus: int, start_s: int, for_s: int) -> None:
        self.play.reserve(number, gpus, start_s, for_s)

    @rule(number=N)
    def release_reservation(self, number: int) -> None:
        self.play.release(number)

    @rule(gpus=N)
    def report_reserved_from_outside(self, gpus: int) -> None:
        self.play.outside_book(gpus)

    @rule(number=N, gpus=N, authority=st.booleans())
    def override(self, number: int, gpus: int, authority: bool) -> None:
        self.play.override(number, gpus, authority)

    @rule()
    def restart_scheduler(self) -> None:
        self.play.restart_scheduler()

    @rule()
    def restart_quota(self) -> None:
        self.play.restart_quota()

    @rule(step=st.sampled_from(STEPS_OF_A_TICK))
    def crash(self, step: CrashStep) -> None:
        self.play.crash(step)

    @rule(appends=N)
    def fill_the_disk(self, appends: int) -> None:
        self.play.break_disk(appends)

    @invariant()
    def the_books_balance_and_no_law_is_broken(self) -> None:
        if not hasattr(self, "play"):
            return
        self.play.verify()
        service = self.play.sim.service
        if service.loop.store_error is None:
            assert check(service.state, service.ledger) == []
            assert check(service.state, self.play.sim.quota.ledger) == []
        assert self.play.broken == []
        self.play.mend()

    def teardown(self) -> None:
        if not hasattr(self, "play"):
            return
        self.play.mend(sure=True)
        self.play.verify()
        replay = self.play.end()
        assert self.play.broken == []
        event(f"plans made again: {min(replay.plans, 20)}")


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=30)
