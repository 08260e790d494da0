"""`python -m sakura.paper_scale`: latencies and qualities at paper scale, in the terminal or as a file of rows."""

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from sakura.errors import UserError
from sakura.paper_scale.devices import device_profile
from sakura.paper_scale.models import CASE_ASSUMPTIONS, MASK_SHARES, model_case
from sakura.paper_scale.networks import NETWORKS
from sakura.paper_scale.notes import QUALITY_NOTE, TIMING_ASSUMPTIONS
from sakura.paper_scale.sweep import MAIN_CASE, MAIN_DEVICE, bandwidth_near_limit, measure_paper_scale, sensitivity

SHOWN = ["latency_s", "limit_s", "on_device_s", "received_bytes", "local_shards", "psnr_mask_db", "ssim_mask"]


def main(
    case: Annotated[str, typer.Option(help="model case")] = MAIN_CASE,
    device: Annotated[str, typer.Option(help="device profile")] = MAIN_DEVICE,
    workload: Annotated[list[str] | None, typer.Option(help="FS, VTON or MB; several times for several")] = None,
    network: Annotated[list[str] | None, typer.Option(help="network; several times for several")] = None,
    requests: Annotated[int, typer.Option(min=1, help="requests of each kind")] = 10,
    sweep: Annotated[bool, typer.Option(help="also halve and double what is assumed")] = False,
    out: Annotated[Path | None, typer.Option(help="write all rows to this JSON file")] = None,
) -> None:
    """Run the pipeline in virtual time on a declared device, and print means over requests."""
    try:
        rows = measure_paper_scale(
            case_id=case,
            device_id=device,
            workloads=workload or list(MASK_SHARES),
            networks=network or list(NETWORKS),
            requests=requests,
        )
        table = pd.DataFrame(rows).groupby(["workload", "network", "system", "controller"], sort=False)[SHOWN].mean()
        table["received_bytes"] = (table["received_bytes"] / 1e6).round(1)
        table = table.rename(columns={"received_bytes": "received_mb"})
        typer.echo(table.round(3).to_string())
        if sweep:
            typer.echo(
                pd.DataFrame(sensitivity(case_id=case, device_id=device, requests=requests)).round(2).to_string()
            )
            near = [
                bandwidth_near_limit(model_case(case), device_profile(device), system=system)
                for system in ("sakura", "cachegen", "intq")
            ]
            typer.echo("Steady bandwidth for at most 15 % over the limit:")
            typer.echo(pd.DataFrame(near).round(1).to_string())
        for sentence in (QUALITY_NOTE, *CASE_ASSUMPTIONS, *TIMING_ASSUMPTIONS, *device_profile(device).assumptions()):
            typer.echo(f"- {sentence}")
        if out:
            out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    except UserError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
