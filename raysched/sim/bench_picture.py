"""The growth of the core as a picture: cost per decision, ticks and memory against the size of the cluster."""

from collections.abc import Sequence
from pathlib import Path

from raysched.sim.bench_core import Measured


def draw_growth(rows: Sequence[Measured], file: Path) -> None:
    """Three panels over the number of nodes, on logarithmic axes; PNG or SVG by the file's name. Needs matplotlib
    (the extra `sim`)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (cost, ticks, memory) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    nodes = [row.nodes for row in rows]
    cost.plot(nodes, [1e6 / row.filling for row in rows], "o-", label="while the cluster fills")
    cost.plot(nodes, [1e6 / row.steady for row in rows], "s-", label="jobs end and are submitted")
    cost.set(title="µs per decision", ylim=(0, None))
    ticks.plot(nodes, [row.tick_p50_ms for row in rows], "o-", label="median")
    ticks.plot(nodes, [row.tick_p99_ms for row in rows], "s-", label="99th percentile")
    ticks.set(title="ms per tick, up to 200 jobs end", ylim=(0, None))
    memory.plot(nodes, [row.node_bytes for row in rows], "o-", label="per node")
    memory.plot(nodes, [row.job_bytes for row in rows], "s-", label="per waiting job")
    memory.set(title="bytes of memory", ylim=(0, None))
    for axes in (cost, ticks, memory):
        axes.set(xscale="log", xlabel=f"nodes, with {rows[0].waiting // rows[0].nodes} waiting jobs each")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
