"""The command `soak`, beside those of `kafka-daily`: `./run.sh soak`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.cli.commands import app, main
from jobs.cli.console import err, out
from jobs.cli.exits import exit_codes
from jobs.cli.json_documents import print_document
from jobs.cli.options import Json, Store
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
    store: Annotated[
        Store,
        typer.Option("--store", help="Where the lakes are: in folders, or in a bucket of a local server."),
    ] = Store.FOLDER,
    json: Json = False,
) -> None:
    """Kill runs at random moments on a real broker, and look after each that every record is there once."""
    with exit_codes(json):
        console = err if json else None
        result = run_soak(
            kills=kills, records=records, seed=seed, keep=keep, in_bucket=store is Store.S3, console=console
        )
        if json:
            print_document(result.document())
        else:
            out.print(result.table())
            out.print(result.summary())


if __name__ == "__main__":
    main("./run.sh")
