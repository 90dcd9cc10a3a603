"""Pictures of a simulation: utilisation, queue, use per share, loans, fragmentation, wait by size; and all on one page.

Needs matplotlib (the extra `sim`): importing this module raises ImportError without it. No display is needed, and the
same outcome gives the same file."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from raysched.core.model import ShareId
from raysched.core.units import MILLI
from raysched.sim.outcome import SIZE_NAMES, Played
from raysched.sim.recording import Sample

Format = Literal["svg", "png"]
Drawing = Callable[[Axes, Played], None]

DAY_MS: Final = 86_400_000
# Okabe and Ito's colours without yellow, which is too faint on white: told apart with any colour vision.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F3C8D", "#11A579")
REST: Final = "#B8B8B8"
INK: Final = "#333333"
FAINT: Final = "#D9D9D9"
SIZE_COLOURS: Final = ("#B8B8B8", "#9ECAE1", "#56B4E9", "#0072B2", "#009E73", "#E69F00", "#D55E00")  # small to large
MOST_SHARES: Final = len(COLOURS)
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "figure.facecolor": "white",
    "svg.hashsalt": "raysched",
    "svg.fonttype": "none",
}
LEAST_WAIT_MS: Final = 200  # where the axis of waits begins: no start takes less
SPANS: Final = ((1_000, "1 s"), (60_000, "1 min"), (3_600_000, "1 h"), (DAY_MS, "1 d"), (30 * DAY_MS, "30 d"))


def draw(played: Played, folder: Path, kind: Format = "svg") -> tuple[Path, ...]:
    """Write every picture and `overview` into a folder, which is made if it is missing. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    with rc_context(STYLE):
        for name, drawing in PICTURES.items():
            figure = Figure(figsize=(8, 3.6), layout="constrained")
            drawing(figure.subplots(), played)
            found.append(_saved(figure, folder / f"{name}.{kind}"))
        figure = Figure(figsize=(13, 9.5), layout="constrained")
        figure.suptitle(_heading(played), fontsize=12, fontweight="bold", x=0.01, ha="left")
        for axes, drawing in zip(figure.subplots(3, 2).flat, PICTURES.values(), strict=True):
            drawing(axes, played)
        found.append(_saved(figure, folder / f"overview.{kind}"))
    return tuple(found)


def _saved(figure: Figure, file: Path) -> Path:
    # A date would make every file differ from the last.
    figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    return file


def _heading(played: Played) -> str:
    return f"{played.name}: {len(played.lines):,} jobs on {played.gpus:,} GPUs"


# ── one picture each ──────────────────────────────────────────────────────────────────────────────────────────────


def utilisation(axes: Axes, played: Played) -> None:
    """GPUs that run work, are claimed, and can be used, as parts of the cluster."""
    at, whole = _times(axes, played.samples), played.gpus * MILLI or 1
    running = [sample.running / whole for sample in played.samples]
    claimed = [sample.claimed / whole for sample in played.samples]
    axes.step(at, claimed, where="post", color=COLOURS[1], label="claimed")
    axes.fill_between(at, running, color=COLOURS[0], alpha=0.25, linewidth=0, step="post")
    axes.step(at, running, where="post", color=COLOURS[0], label="running")
    capacity = [sample.capacity / whole for sample in played.samples]
    axes.step(at, capacity, where="post", color=INK, linewidth=0.9, label="usable")
    axes.set_ylim(0, 1.05 * max([1.0, *capacity]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("GPU utilisation")
    _legend(axes)


def queue(axes: Axes, played: Played) -> None:
    """GPUs that waiting jobs ask for, next to the size of the cluster, and how many jobs wait."""
    at = _times(axes, played.samples)
    asked = [sample.queued / MILLI for sample in played.samples]
    axes.fill_between(at, asked, color=COLOURS[5], alpha=0.25, linewidth=0, step="post")
    axes.step(at, asked, where="post", color=COLOURS[5], label="GPUs asked")
    axes.step(at, [sample.queued_jobs for sample in played.samples], where="post", color=INK, label="jobs")
    if asked and max(asked) > played.gpus / 2:
        axes.axhline(played.gpus, color=REST, linewidth=0.9, linestyle=(0, (4, 2)), label="the whole cluster")
    axes.set_ylim(bottom=0)
    axes.set_title("Queue")
    _legend(axes)


def use_per_share(axes: Axes, played: Played) -> None:
    """GPUs charged to each share, one upon the other; small shares together."""
    at = _times(axes, played.samples)
    shown, rest = _largest(played.samples)
    series = [[sample.used.get(share, 0) / MILLI for sample in played.samples] for share in shown]
    labels = [str(share) for share in shown]
    if rest:
        series.append([sum(sample.used.get(share, 0) for share in rest) / MILLI for sample in played.samples])
        labels.append(f"{len(rest)} others")
    if at and series:
        colours = [*COLOURS[: len(shown)], *([REST] if rest else [])]
        axes.stackplot(at, series, labels=labels, colors=colours, linewidth=0, step="post")
    axes.axhline(played.gpus, color=INK, linewidth=0.9)
    axes.set_ylim(0, played.gpus * 1.05 or 1)
    axes.set_title("GPUs charged to each share")
    _legend(axes, reverse=True)


def loans(axes: Axes, played: Played) -> None:
    """GPUs on loan: what shares borrow above the line, from whom below it."""
    at = _times(axes, played.samples)
    shown, _ = _largest(played.samples)
    for sign, what in ((1, "borrowed"), (-1, "lent")):
        floor = [0.0] * len(at)
        for share, colour in [*zip(shown, COLOURS, strict=False), (None, REST)]:
            amounts = [_of(getattr(sample, what), share, shown) for sample in played.samples]
            if not any(amounts):
                continue
            top = [low + sign * amount / MILLI for low, amount in zip(floor, amounts, strict=True)]
            label = ("others" if share is None else str(share)) if sign > 0 else None
            axes.fill_between(at, floor, top, color=colour, linewidth=0, step="post", label=label)
            floor = top
    axes.axhline(0, color=INK, linewidth=0.9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g}"))
    axes.set_title("GPUs on loan: borrowed (above), lent (below)")
    _legend(axes)


def fragmentation(axes: Axes, played: Played) -> None:
    """Free GPU that typical jobs cannot use, and free GPU on partly used nodes, as parts of the cluster."""
    at, whole = _times(axes, played.samples), played.gpus * MILLI or 1
    stranded = [sample.stranded / whole for sample in played.samples]
    axes.step(at, stranded, where="post", color=COLOURS[4], label="free on partly used nodes")
    wasted = [sample.fragmented / whole for sample in played.samples]
    axes.fill_between(at, wasted, color=COLOURS[3], alpha=0.35, linewidth=0, step="post")
    axes.step(at, wasted, where="post", color=COLOURS[3], label="no use to typical jobs")
    axes.set_ylim(0, 1.15 * max([0.05, *stranded, *wasted]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Fragmentation")
    _legend(axes)


def wait_by_size(axes: Axes, played: Played) -> None:
    """What part of the jobs of each size had started after a time."""
    longest = 0
    for name, colour in zip(SIZE_NAMES, SIZE_COLOURS, strict=True):
        lines = [line for line in played.lines if line.size == name and line.state != "dropped"]
        waits = sorted(line.wait_ms for line in lines if line.wait_ms is not None)
        if waits:
            longest = max(longest, waits[-1])
            started = [number / len(lines) for number in range(1, len(waits) + 1)]
            label = f"{name} ({len(lines):,})"
            axes.step([max(wait, LEAST_WAIT_MS) for wait in waits], started, where="post", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_WAIT_MS, max(120_000, longest * 1.5))
    axes.xaxis.set_major_locator(FixedLocator([ms for ms, _ in SPANS]))
    names = dict(SPANS)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(round(value), "")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Jobs that had started after a wait, by GPUs asked")
    _legend(axes)


PICTURES: Final[dict[str, Drawing]] = {
    "utilisation": utilisation,
    "queue": queue,
    "use-per-share": use_per_share,
    "loans": loans,
    "fragmentation": fragmentation,
    "wait-by-size": wait_by_size,
}


# ── what they have in common ──────────────────────────────────────────────────────────────────────────────────────


def _times(axes: Axes, samples: Sequence[Sample]) -> list[float]:
    """The times of the samples in the axis' unit, and the axis labelled with it."""
    last = samples[-1].at_ms if samples else 0
    unit, name = (DAY_MS, "days") if last > 3 * DAY_MS else (DAY_MS / 24, "hours")
    axes.set_xlabel(name)
    axes.set_xlim(0, max(last / unit, 1e-3))
    return [sample.at_ms / unit for sample in samples]


def _largest(samples: Iterable[Sample]) -> tuple[list[ShareId], list[ShareId]]:
    """Shares by what they used in all, the largest first: those with a colour of their own, and the rest."""
    used: dict[ShareId, int] = {}
    for sample in samples:
        for share, amount in sample.used.items():
            used[share] = used.get(share, 0) + amount
    order = sorted(used, key=lambda share: (-used[share], share))
    most = MOST_SHARES if len(order) <= MOST_SHARES else MOST_SHARES - 1
    return order[:most], order[most:]


def _of(amounts: dict[ShareId, int], share: ShareId | None, shown: Sequence[ShareId]) -> int:
    """The amount of a share; of None, what all those that are not shown have together."""
    if share is not None:
        return amounts.get(share, 0)
    return sum(amount for other, amount in amounts.items() if other not in shown)


def _legend(axes: Axes, reverse: bool = False) -> None:
    """Beside the picture, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), reverse=reverse, handlelength=1.4)
