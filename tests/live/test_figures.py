"""The figures in Ray's own metrics, where its dashboard and Prometheus find them."""

import httpx
import pytest
import ray

from tests.live.house import House, until

pytestmark = pytest.mark.ray


def test_rays_own_metrics_show_the_figures(house: House) -> None:
    house.submit(["sleep", "600"], gpu=4)

    def shown() -> str | None:
        text = _of_the_head()
        return text if 'share="vision"' in text and "ray_raysched_" in text else None

    text = until(shown, "the figures on the head's metrics port", _of_the_head)
    names = {line.split("{")[0] for line in text.splitlines() if line.startswith("ray_raysched_")}
    for word in ("queue", "used", "node", "tick"):
        assert [name for name in names if word in name], (word, names)


def _of_the_head() -> str:
    (head,) = [row for row in ray.nodes() if "node:__internal_head__" in row["Resources"] and row["Alive"]]
    return httpx.get(f"http://127.0.0.1:{head['MetricsExportPort']}/metrics", timeout=30).text
