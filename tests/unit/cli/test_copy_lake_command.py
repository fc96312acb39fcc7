"""`copy-lake` takes two configs of one topic, refuses others, and says what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command_line import document, invoke
from tests.support.config_text import THREE_DAYS
from tests.support.three_days import a_lake


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(a_lake(3), tmp_path / "lake")
    return a_config(tmp_path / "orders.yaml")


def a_config(path: Path, old: str = "", new: str = "") -> Path:
    path.write_text(THREE_DAYS.replace(old, new) if old else THREE_DAYS)
    return path


def test_it_copies_and_says_what_to_do_next(config: Path) -> None:
    to = a_config(config.with_name("new.yaml"), "./lake", "./new")
    code, stdout, _ = invoke("copy-lake", "--config", config, "--to", to)
    assert code == 0
    assert "3 day(s), 2026-03-28 to 2026-03-30" in stdout
    assert "next: stop the job of" in stdout
    code, told = document("copy-lake", "--config", config, "--to", to)
    assert (code, told["copied"]["days"], told["copied"]["copied_days"]) == (0, 3, 0)
    assert (told["from"], told["to"]) == (str(config.parent / "lake"), str(config.parent / "new"))
    assert invoke("verify", "--config", to, "--level", "records")[0] == 0


@pytest.mark.parametrize("place", ["./lake", "./lake/../lake", "./link", "./lake/inside", "."])
def test_one_place_is_no_copy(config: Path, place: str) -> None:
    (config.parent / "link").symlink_to("lake")
    to = a_config(config.with_name("new.yaml"), "./lake", place)
    code, _, stderr = invoke("copy-lake", "--config", config, "--to", to)
    assert (code, "another `lake.path`" in " ".join(stderr.split())) == (2, True)


def test_another_topic_is_refused(config: Path) -> None:
    to = a_config(config.with_name("new.yaml"), "topic: orders", "topic: returns")
    code, _, stderr = invoke("copy-lake", "--config", config, "--to", to)
    assert (code, "one of returns" in " ".join(stderr.split())) == (2, True)


def test_buckets_of_two_endpoints_are_two_places(config: Path) -> None:
    of = "lake: {{path: 's3://lakes/orders', store: {{endpoint: '{}'}}}}"
    one, other = (f"https://{name}.example" for name in ("one", "other"))
    from jobs.cli.copies import _is_one_place
    from jobs.context import load

    lake = "lake: {path: ./lake}"
    first = load(a_config(config.with_name("a.yaml"), lake, of.format(one)))
    again = load(a_config(config.with_name("b.yaml"), lake, of.format(one)))
    second = load(a_config(config.with_name("c.yaml"), lake, of.format(other)))
    assert _is_one_place(first, again)
    assert not _is_one_place(first, second)
    assert not _is_one_place(first, load(config))
