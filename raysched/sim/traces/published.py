"""The published curves of the FGD experiments, to compare with: GPU allocation by what had been asked for."""

from collections import defaultdict
from pathlib import Path
from statistics import fmean

from raysched.sim.traces.reading import rows

FOLDER = "fgd-expected-results"
FILE = "analysis_allo_discrete.csv.gz"
ASKED = 130  # the headline: when 130 % of the capacity has been asked for
POLICIES = {
    "01-Random": "random",
    "02-DotProd": "dot_product",
    "03-GpuClustering": "clustering",
    "04-GpuPacking": "packing",
    "05-BestFit": "best_fit",
    "06-FGD": "fgd",
}


def read_allocation(folder: Path, asked_percent: int = ASKED) -> dict[tuple[str, str], float]:
    """Mean allocation in per cent over the published seeds, by (workload, policy). Raises TraceError."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    column = str(asked_percent)
    for row in rows(folder / FILE, ("workload", "sc_policy", column)):
        policy = POLICIES.get(row.text("sc_policy"))
        if policy is None:
            raise row.error(f"sc_policy: {row.text('sc_policy')!r} is not one of {', '.join(POLICIES)}")
        found[row.text("workload").removeprefix("openb_pod_list_"), policy].append(row.number(column))
    return {key: fmean(values) for key, values in found.items()}
