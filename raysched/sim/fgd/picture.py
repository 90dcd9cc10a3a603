"""The experiment as a picture: GPU allocation while more and more is asked for."""

from pathlib import Path

import matplotlib
import numpy as np

from raysched.sim.fgd.experiment import run
from raysched.sim.fgd.table import nodes_of, workload_of_trace

# Who is drawn, with what name.
DRAWN = {
    "random": "random",
    "best_fit": "best fit",
    "fgd": "FGD",
    "live": "raysched, live placement",
    "raysched": "raysched's policy",
}


def draw_curves(traces: Path, workload: str, seed: int, file: Path) -> None:
    """One seed of one workload; PNG or SVG by the file's name. Raises TraceError. Needs the extra `sim`."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for policy, name in DRAWN.items():
        curve = run(workload_of_trace(traces, workload), nodes_of(traces), policy, seed).curve()
        arrived = np.array(sorted(at for at in curve if at >= 80))
        axes.plot(arrived, [curve[at] for at in arrived], label=name)
    axes.plot([80, 100, 130], [80, 100, 100], color="0.7", linestyle=":", label="all that was asked, at most 100")
    axes.set(xlabel="GPU asked for so far, % of capacity", ylabel="GPU allocated, %", ylim=(78, 101))
    axes.set_title(f"openb, workload {workload}: each pod is tried once, at its arrival", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
