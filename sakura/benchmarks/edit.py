"""`python -m sakura bench edit`: how long an edit takes under each system, all in one run."""

import pandas as pd

from sakura.streaming.live import Contestant, Row

CONTESTANTS = (Contestant("on_device"), Contestant("full_cache"), Contestant("sakura"))


def summarise(rows: list[Row], rtt_s: float) -> dict[str, object]:
    """Medians over all requests and a workload: latencies on the device, speed-ups and their limit."""
    table = pd.DataFrame(rows)
    by_workload = {str(workload): _medians(part) for workload, part in table.groupby("workload", sort=False)}
    requests = len(table[table["system"] == "sakura"])
    return {**_medians(table), "rtt_s": rtt_s, "requests": requests, "workloads": by_workload}


def _medians(table: pd.DataFrame) -> dict[str, float]:
    ours = table[table["system"] == "sakura"]
    latency = table.groupby("system")["latency_s"].median()
    on_device, full, sakura = (float(latency[name]) for name in ("on_device", "full_cache", "sakura"))
    limit_s = float(ours["limit_s"].median())
    return {
        "on_device_s": on_device,
        "full_cache_s": full,
        "sakura_s": sakura,
        "limit_s": limit_s,
        "speedup_vs_on_device": on_device / sakura,
        "speedup_vs_full_cache": full / sakura,
        "speedup_limit": on_device / limit_s,
        "share_of_limit": limit_s / sakura,
        "sakura_press_to_picture_s": float(ours["press_to_picture_s"].median()),
        "sakura_received_bytes": float(ours["received_bytes"].median()),
        "sakura_mask_psnr_db": float(ours["psnr_mask_db"].mean()),
        "sakura_local_shards": float(ours["local_shards"].mean()),
    }
