"""The demonstration: a real cluster on this machine, real jobs, a loan, a limit, a node that dies and its standby.

It needs no GPU: the nodes declare theirs. It prints a timeline and the ledger, checks the books, and ends by itself."""

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import cloudpickle
import msgspec
from rich.console import Console
from rich.table import Table

from raysched.config import duration_text
from raysched.core.model import Bundle, FunctionRun, JobId, JobSpec, ShareId, UserId
from raysched.core.units import format_amount, parse_duration_ms
from raysched.runtime import bringup, demo_jobs
from raysched.runtime.local_cluster import find_local
from raysched.runtime.scheduler_actor import NAME, NAMESPACE

PATIENCE_S: Final = 150.0
TEXT: Final = """\
version: 1
cluster: demo
defaults:
  {{silent_after: 3s, evidence_max_age: 10s, failed_after: {failed_after}, healthy_after: 4s, validate_for: 10s,
   fence_after: 4s, fence_wait: 6s}}
node_specs: {{sim8: {{gpu: 8, gpu_model: SIM, cpu: 8, memory: 16Gi}}}}
pools:
  train:  {{region: local, match: {{pool: train}}}}
  spares: {{region: local, match: {{pool: spares}}, role: standby}}
local_nodes:
  - {{pool: train, spec: sim8, count: 3, prefix: node}}
  - {{pool: spares, spec: sim8, count: 1, prefix: spare}}
shares:
  vision:
    nominal: {{train: {{gpu: 16}}}}
    weight: 60
    sharing: {{strategy: lend_and_borrow, borrow_limit: 100%}}
    queue: {{policy: any_fit}}
    limits: {{enabled: true, rules: [{{user: bo, gpu: 4}}]}}
  language:
    nominal: {{train: {{gpu: 8}}}}
    weight: 40
    sharing: {{strategy: lend_and_borrow, borrow_limit: 100%}}
    queue: {{policy: any_fit}}
    reclaim: {{policy: wait}}
"""


class DemoFailed(Exception):
    """Something did not happen that the demonstration is there to show."""


def run(failed_after: str = "10s", as_json: bool = False) -> int:
    """Run it. `failed_after`: how long a node is bad before it is replaced (production: 60s). Returns 0 or 1."""
    home = Path(tempfile.mkdtemp(prefix="rd-"))
    story = Story(duration_text(parse_duration_ms(failed_after)), home, _console(as_json))
    try:
        # Ray's driver writes a page about every node that dies; here one is killed on purpose.
        with contextlib.ExitStack() as aside:
            log = aside.enter_context(open(home / "driver.log", "w"))
            aside.enter_context(contextlib.redirect_stdout(log))
            aside.enter_context(contextlib.redirect_stderr(log))
            aside.enter_context(story.cluster())
            story.tell()
        if as_json:
            print(json.dumps(story.facts, indent=2))
        return 0
    except DemoFailed as failed:
        story.say(f"[bold red]failed[/]: {failed}")
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _console(as_json: bool) -> Console:
    found = Console(file=sys.stderr if as_json else sys.stdout)
    return found if found.is_terminal else Console(file=found.file, width=160)


class Story:
    """The demonstration while it runs. `facts` collects what it showed."""

    def __init__(self, failed_after: str, home: Path, console: Console) -> None:
        self.failed_after, self.home, self.console = failed_after, home, console
        self.facts: dict[str, Any] = {"failed_after": failed_after}
        self.begun = time.monotonic()
        self.hold = home
        self.seen: dict[str, tuple[str, str | None, int]] = {}
        self.health: dict[str, tuple[str, str]] = {}
        self.loans: dict[tuple[str, str], int] = {}
        self.actor: Any = None
        self.state: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """One line of the timeline."""
        self.console.print(f"[dim]{time.monotonic() - self.begun:6.1f} s[/]  {text}", highlight=False)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[None]:
        """The cluster of the demonstration, from start to end."""
        self.say("starting Ray on this machine: a head, three nodes of 8 declared GPUs, one equal standby")
        path = self.home / "demo.yaml"
        path.write_text(TEXT.format(failed_after=self.failed_after), encoding="utf-8")
        port = bringup.free_port()
        self.state = bringup.up(
            str(path),
            local_nodes=True,
            api_port=port,
            dashboard=False,
            directory=str(self.home / "data"),
            temp_dir=str(self.home / "ray"),
        )
        try:
            with bringup.connected(self.state["address"]):
                import ray

                self.actor = ray.get_actor(NAME, namespace=NAMESPACE)
                self.say(f"raysched is up; REST API at {self.state['api_url']}/docs")
                yield
        finally:
            self.say("stopping")
            bringup.down_local(self.state)

    def call(self, method: str, *args: Any, **named: Any) -> Any:
        """One call of the scheduler; an error value ends the demonstration."""
        import ray

        found = ray.get(getattr(self.actor, method).remote(*args, **named), timeout=60.0)
        if isinstance(found, dict) and "error" in found:
            raise DemoFailed(found["error"]["message"])
        return found

    # ── the story ─────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self) -> None:
        """From the first submission to the books."""
        self.until("the nodes are healthy", lambda: sum(h == "healthy" for h, _ in self.health.values()) == 4)
        self._table("shares", ("share", "owns", "lends to and borrows from the other"), self._share_rows())
        steps = self.home / "checkpoints"
        steps.mkdir()
        self.hold = steps / "hold"
        self.hold.touch()  # as long as it is there the gang goes on: long enough to lose a node
        self.submit("pretrain", "ana", "vision", demo_jobs.all_reduce, (str(steps), 16), gpus=8, count=2)
        self.until("the gang runs on two nodes", lambda: self.is_("pretrain", "running"))
        self.submit("sweep", "ana", "vision", demo_jobs.work, ("sweep", 14.0), gpus=4)
        self.until("vision borrows from language", lambda: ("vision", "language") in self.loans)
        self.submit("probe", "bo", "vision", demo_jobs.work, ("probe", 9.0), gpus=4)
        self.submit("probe2", "bo", "vision", demo_jobs.work, ("probe2", 2.0), gpus=4)
        self.until("bo's second job waits for bo's limit", lambda: self.waits("probe2", "USER_LIMIT"))
        self.say(f"[yellow]why does probe2 wait?[/] {self.call('explain', 'probe2')['text']}")
        self.submit("finetune", "cy", "language", demo_jobs.work, ("finetune", 3.0), gpus=4)
        self.until("language waits for what it lent", lambda: self.is_("finetune", "queued"))
        self.say(f"[yellow]why does finetune wait?[/] {self.call('explain', 'finetune')['text']}")
        self.until("language gets its quota back", lambda: self.is_("finetune", "running", "succeeded"))
        self.until("the small jobs end", lambda: all(self.is_(j, "succeeded") for j in ("sweep", "probe", "probe2")))
        self._lose_a_node()
        self.until("finetune ends", lambda: self.is_("finetune", "succeeded"))
        self._books()

    def _lose_a_node(self) -> None:
        victim = self.call("job", "pretrain")["nodes"][1]
        self.say(f"[bold red]kill -9[/] of the Ray node on {victim}, where the second half of pretrain runs")
        killed = time.monotonic()
        find_local(self.state["temp_dir"]).kill(victim)
        self.until("the standby takes its place", lambda: self.health.get("spare0", ("", ""))[1] == "train")
        took = time.monotonic() - killed
        self.say(f"the standby took over {took:.1f} s after the kill (failed_after is {self.failed_after})")
        self.facts["swap_s"] = round(took, 1)
        self.until(
            "the gang runs again", lambda: self.seen["pretrain"][0] == "running" and self.seen["pretrain"][2] > 1
        )
        self.hold.unlink()
        self.until("the gang ends", lambda: self.is_("pretrain", "succeeded", "failed"))
        view = self.call("job", "pretrain")
        if view["state"] != "succeeded" or view["attempt"] < 2:
            raise DemoFailed(f"pretrain is {view['state']} after attempt {view['attempt']}: {view['detail']}")
        result = cloudpickle.loads(self.call("get_blob", view["result"]))["value"]
        self.say(f"pretrain says: {result}")
        self.facts["pretrain"] = result

    def submit(
        self,
        job: str,
        user: str,
        share: str,
        function: Callable[..., object],
        args: tuple[Any, ...],
        *,
        gpus: int,
        count: int = 1,
    ) -> None:
        """A function as a job, as `raysched.submit` does it."""
        payload = self.call("put_blob", cloudpickle.dumps((function, args, {})))
        spec = JobSpec(
            job=JobId(job),
            user=UserId(user),
            share=ShareId(share),
            bundles=(Bundle(gpu_milli=gpus * 1000, cpu_milli=500, count=count),),
            run=FunctionRun(payload=payload, name=function.__name__),
        )
        self.call("submit", msgspec.to_builtins(spec), user)
        self.say(f"[bold]{user}[/] submits [bold]{job}[/] to {share}: {count} × {gpus} GPUs")

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Watch, and print what changes, until something holds. Raises DemoFailed when it does not in time."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.look()
            if holds():
                return
            if time.monotonic() > deadline:
                raise DemoFailed(f"in {PATIENCE_S:.0f} s it did not happen that {what}")
            time.sleep(0.2)

    def look(self) -> None:
        """Print what has changed."""
        for node in self.call("nodes"):
            now = (node["health"], node["pool"])
            before = self.health.get(node["node"])
            if before not in (now, None):
                self.say(f"node {node['node']} is [bold]{now[0]}[/] in pool {now[1]}: {node['why']}")
            self.health[node["node"]] = now
        for job in reversed(self.call("jobs")):
            now_job = (job["state"], job["reason"], job["attempt"])
            if self.seen.get(job["job"]) != now_job:
                self.seen[job["job"]] = now_job
                self._job_changed(job)
        loans = {(n["borrower"], n["lender"]): n["amount"] for n in self.call("loans") if n["kind"] == "gpu"}
        for pair in sorted({*loans, *self.loans}):
            if loans.get(pair) != self.loans.get(pair):
                self.say(f"[magenta]loan[/] {pair[1]} → {pair[0]}: {format_amount('gpu', loans.get(pair, 0))} GPUs")
        self.loans = loans

    def _job_changed(self, job: dict[str, Any]) -> None:
        if job["state"] == "queued" and job["reason"] is None:
            return
        where = f" on {', '.join(job['nodes'])}" if job["nodes"] and job["state"] in ("claimed", "running") else ""
        why = f" ({job['reason']})" if job["reason"] else ""
        attempt = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
        if job["state"] not in ("claimed", "starting", "stopping") or why:
            self.say(f"job [bold]{job['job']}[/] is [cyan]{job['state']}[/]{why}{where}{attempt}")

    def is_(self, job: str, *states: str) -> bool:
        """Whether a job is in one of these states."""
        return self.seen.get(job, ("",))[0] in states

    def waits(self, job: str, reason: str) -> bool:
        """Whether a job is queued for this reason."""
        return self.seen.get(job, ("", None, 0))[:2] == ("queued", reason)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _books(self) -> None:
        """The ledger, and whether everything balances."""
        rows = self.call("ledger", None, 0, 1_000)
        shown = [row for row in rows if row["entry"]["type"] in ("Claimed", "Committed", "Released", "Recorded")]
        self._table("ledger", ("version", "entry", "job", "attempt", "what"), [_ledger_row(row) for row in shown])
        self.until("nothing is left over", lambda: not self._left_over())
        broken = self.call("check")["broken"]
        if broken:
            raise DemoFailed(f"the books do not balance: {broken}")
        again = self.call("verify")
        if again["disagreements"]:
            raise DemoFailed(f"decided again, the ledger disagrees: {again['disagreements']}")
        self.facts |= {"ledger_rows": len(rows), "decided_again": again["decided"]}
        self.say(f"every decision was made again from the ledger: {again['decided']} of {again['decided']} agree")
        self.say(f"[bold green]the books balance[/]: {len(rows)} ledger rows, no claim open, no placement group left")

    def _left_over(self) -> bool:
        import ray.util

        used = any(amounts for amounts in self.call("usage")["shares"].values())
        groups = ray.util.placement_group_table().values()
        return used or any(group["state"] != "REMOVED" for group in groups)

    def _share_rows(self) -> list[tuple[str, ...]]:
        return [
            (s["share"], f"{format_amount('gpu', s['owned']['gpu'])} GPUs", s["strategy"]) for s in self.call("shares")
        ]

    def _table(self, title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        table = Table(*columns, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        self.console.print(table)


def _ledger_row(row: dict[str, Any]) -> tuple[str, ...]:
    entry = row["entry"]
    record = entry.get("record") or {}
    job, attempt = entry.get("job") or record.get("job", ""), entry.get("attempt") or record.get("attempt", "")
    if entry["type"] == "Claimed":
        gpus = format_amount("gpu", entry["amounts"].get("gpu", 0))
        nodes = ", ".join(dict.fromkeys(placed[0] for placed in entry["placement"]))
        what = f"{record['admission_state']}: {gpus} GPUs of {entry['share']} on {nodes}"
    elif entry["type"] == "Recorded":
        limit, used = record["quota_limit"], record["quota_used"]
        numbers = f"{format_amount('gpu', used)} of {format_amount('gpu', limit)} in use"
        what = f"{record['admission_state']}: {record.get('reason', '')} ({record['scope']}: {numbers})"
    else:
        what = entry.get("why", "")
    return str(row["version"]), entry["type"], str(job), str(attempt), what
