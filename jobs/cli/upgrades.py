"""The command `upgrade`: the lake of one topic, or of several, and what is printed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from jobs import context
from jobs.cli import console, tables
from jobs.cli.json_documents import print_document
from jobs.cli.progress import progress
from jobs.topics import worst
from jobs.upgrade.chain import upgradable
from jobs.upgrade.run import Upgraded, upgrade
from offsets.errors import KafkaDailyError, VerifyFailed


def upgrade_topic(config: Path | None, *, execute: bool, as_json: bool) -> None:
    """Upgrade one lake, or show what that would change."""
    result = _result(config, execute=execute, as_json=as_json)
    if result.left:
        raise _left(result)
    if as_json:
        print_document(_document(result, execute=execute))


def upgrade_several(configs: Sequence[Path], *, execute: bool, as_json: bool) -> None:
    """Upgrade one lake after the other, and exit with the worst code; one that is refused stops no other."""
    documents, codes = list[Mapping[str, object]](), [0]
    for config in configs:
        try:
            if not as_json:
                console.out.print(f"{config}", markup=False)
            result = _result(config, execute=execute, as_json=as_json)
            failure: KafkaDailyError | None = _left(result) if result.left else None
            document = _document(result, execute=execute)
        except KafkaDailyError as error:
            failure, document = error, {}
        if failure:
            console.failure(failure, as_json=False, about=str(config))
        codes.append(failure.exit_code if failure else 0)
        documents.append(
            {"config": str(config), **document, "failure": failure.document() if failure else None}
        )
    code = worst(codes)
    if as_json:
        print_document({"topics": documents, "exit_code": code})
    if code:
        raise typer.Exit(code)


def _result(config: Path | None, *, execute: bool, as_json: bool) -> Upgraded:
    with progress("upgrading") as bar, context.open_context(config) as pipeline:
        if execute:
            result = upgrade(pipeline, lambda done, total: bar(done, total, " files"))
        else:
            result = Upgraded(days=upgradable(pipeline.lake), left={})
    if not as_json:
        tables.upgraded(result) if execute else tables.upgradable(result.days)
    return result


def _left(result: Upgraded) -> VerifyFailed:
    found = "; ".join(f"{day}: {problem}" for day, problem in [*result.left.items()][:3])
    more = f"; and {len(result.left) - 3} more" if len(result.left) > 3 else ""
    return VerifyFailed(
        expected="each day of an earlier format to be as it was committed",
        found=found + more,
        do="These days stay as they are, and are read as before. See what `verify` says, build each again "
        "(`run --date D --force`) or restore it from a backup, then run `upgrade --execute` again.",
        **_document(result, execute=True),
    )


def _document(result: Upgraded, *, execute: bool) -> dict[str, object]:
    left = {str(day): problem for day, problem in result.left.items()}
    return {"upgraded": execute, "days": result.days, "left": left}
