"""The command `soak`, beside those of `kafka-daily`: `./run.sh soak`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli import tables
from jobs.cli.commands import Json, _stopping, app, main
from tests.soak.run import run_soak


@app.command()
def soak(
    kills: Annotated[int, typer.Option("--kills", min=1, help="How many SIGKILLs to deal.")] = 20,
    records: Annotated[
        int, typer.Option("--records", min=1000, help="About how many records, over three days.")
    ] = 500_000,
    seed: Annotated[
        int | None,
        typer.Option("--seed", show_default=False, help="For what is drawn; delays follow the pace."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lakes to look at.")] = False,
    json: Json = False,
) -> None:
    """Kill runs at random moments on a real broker, and look after each that every record is there once."""
    with _stopping(json):
        console = tables.err if json else None
        found = run_soak(kills=kills, records=records, seed=seed, keep=keep, console=console)
        if json:
            tables.document(found.document())
        else:
            tables.out.print(found.table())
            tables.out.print(found.summary())


if __name__ == "__main__":
    main("./run.sh")
