"""A manifest comes back as it was written, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.checkpoint import Anchor, Checkpoint, LostOffsets, PartitionCheckpoint
from offsets.contract import Accepted, Contract
from offsets.errors import LedgerBroken
from offsets.manifest import FORMAT_VERSION, CauseCount, FileOffsets, Gaps, Manifest
from offsets.manifest_text import checksum_of, from_json, lists_of, require_lists, to_json
from offsets.ranges import Offsets
from tests.support import manifests

FROZEN = Path(__file__).parents[2] / "data"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
counts = st.integers(0, 2**63 - 1)
offset_sets = st.frozensets(st.integers(0, 60)).map(lambda them: Offsets.of((at, at + 1) for at in them))
instants = st.datetimes(
    datetime(1970, 1, 1),
    datetime(9999, 12, 31),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
contracts = st.dictionaries(texts, json_values, max_size=4).map(Contract)
anchors = st.none() | st.builds(Anchor, offset=counts, timestamp=st.integers(-1, 2**62), digest=texts)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    parts = []
    for partition in sorted(draw(st.frozensets(st.integers(0, 9), max_size=3))):
        pending, anchor = draw(offset_sets), draw(anchors)
        lowest = max(pending.ranges[-1][1] if pending.ranges else 0, anchor.offset + 1 if anchor else 0)
        parts.append(
            PartitionCheckpoint(partition=partition, seen_until=lowest, pending=pending, anchor=anchor)
        )
    return Checkpoint(topic=manifests.TOPIC, partitions=tuple(parts))


@st.composite
def any_manifests(draw: st.DrawFn) -> Manifest:
    rows = draw(st.lists(st.integers(1, 99), max_size=3))
    offsets = tuple(
        FileOffsets(partition=at, rows=count, from_offset=0, until_offset=count)
        for at, count in enumerate(rows)
    )
    return replace(
        manifests.full(),
        run_id=draw(texts),
        contract=draw(contracts),
        accepted=Accepted(contract=tuple(draw(st.lists(texts, max_size=2)))),
        consumed=draw(checkpoints()),
        next=draw(checkpoints()),
        cleanup_policy=draw(st.none() | st.sampled_from(["delete", "compact,delete"])),
        transactional=draw(st.none() | st.booleans()),
        gaps=tuple(
            Gaps(partition=at, offsets=each)
            for at, each in enumerate(draw(st.lists(offset_sets, max_size=3)))
        ),
        causes=tuple(
            CauseCount(cause=cause, rows=1, partition=0, offset=draw(counts))
            for cause in draw(st.lists(texts, max_size=2))
        ),
        files=tuple(replace(file, rows=sum(rows), offsets=offsets) for file in manifests.full().files),
        started=draw(instants),
        versions=draw(st.dictionaries(texts, texts, max_size=3)),
    )


@given(any_manifests())
def test_a_manifest_comes_back_as_it_was_written(manifest: Manifest) -> None:
    text = to_json(manifest)
    again = from_json(text, "here")
    assert again == manifest
    assert to_json(again) == text


def test_the_frozen_copy_of_format_1_stays_readable() -> None:
    """What a version wrote once, every later one reads: change the reader, never this file."""
    now = manifests.full()
    then = replace(
        now,
        accepted=replace(now.accepted, loss=()),
        transactional=None,
        remade=(),
        tally=tuple(replace(each, digest="") for each in now.tally),
        earlier=None,
        columns=(),
    )
    assert from_json((FROZEN / "manifest-format-1.json").read_bytes(), "format 1") == then


@pytest.mark.parametrize("count", [999, 1_000, 1_001])
def test_of_the_gaps_of_format_1_no_more_are_said_to_be_probed_than_were(count: int) -> None:
    body = json.loads((FROZEN / "manifest-format-1.json").read_bytes())
    body["gaps"][0]["offsets"] = [[at, at + 1] for at in range(0, 2 * count, 2)]
    rest = {key: value for key, value in body.items() if key not in ("format_version", "checksum")}
    old = from_json(json.dumps({"format_version": 1, "checksum": checksum_of(rest)} | rest).encode(), "here")
    assert old.gaps[0].probed == min(count, 1_000)


def test_the_frozen_copy_of_format_2_stays_readable() -> None:
    then = replace(manifests.full(), earlier=None, columns=())
    assert from_json((FROZEN / "manifest-format-2.json").read_bytes(), "format 2") == then


def test_the_frozen_copy_of_format_3_stays_readable() -> None:
    then = replace(manifests.full(), columns=())
    assert from_json((FROZEN / "manifest-format-3.json").read_bytes(), "format 3") == then


def test_a_loss_of_format_3_does_not_say_how_many_offsets_were_lost() -> None:
    older, now = (
        from_json((FROZEN / f"manifest-format-{format_}.json").read_bytes(), "a day").accepted
        for format_ in (3, 4)
    )
    assert (older.loss, older.lost_offsets, now.lost_offsets) == (now.loss, None, 1)


@pytest.mark.parametrize("unsettled", [0, 3])
def test_no_more_offsets_are_lost_than_lie_in_a_range(unsettled: int) -> None:
    with pytest.raises(ValueError, match="cannot be lost in 0:8-10"):
        LostOffsets(partition=0, from_offset=8, until_offset=10, unsettled=unsettled)


def test_the_frozen_copy_of_format_4_stays_readable_and_is_what_is_written() -> None:
    text = (FROZEN / "manifest-format-4.json").read_bytes()
    assert from_json(text, "format 4") == manifests.full()
    assert to_json(manifests.full()) == text


def with_long_sets() -> Manifest:
    """Make a manifest with gaps and pending offsets of many ranges."""
    full = manifests.full()
    part = full.next.partitions[0]
    later = replace(part, seen_until=10_000, pending=Offsets((at, at + 1) for at in range(30, 9_000, 3)))
    gaps = replace(full.gaps[0], offsets=Offsets((at, at + 2) for at in range(0, 3 * 5_000, 3)))
    return replace(full, gaps=(gaps,), next=replace(full.next, partitions=(later, *full.next.partitions[1:])))


def test_long_sets_of_offsets_lie_beside_the_text_and_come_back() -> None:
    manifest = with_long_sets()
    text, lists = to_json(manifest), lists_of(manifest)
    again = from_json(text, "here", lambda at, size: lists[at : at + size])
    assert len(text) < 2 * len(to_json(manifests.full()))
    assert again == manifest
    assert (to_json(again), lists_of(again)) == (text, lists)
    assert [len(gap.offsets) for gap in again.gaps] == [10_000]


def test_figures_of_a_long_set_are_had_without_reading_it() -> None:
    def never(at: int, size: int) -> bytes:
        raise AssertionError("nobody asked for the set itself")

    (gap,) = from_json(to_json(with_long_sets()), "here", never).gaps
    assert (len(gap.offsets), gap.offsets.range_count) == (10_000, 5_000)
    assert (gap.offsets.first, gap.offsets.until) == (0, 14_999)


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_list_is_refused_when_it_is_used(damage: str) -> None:
    manifest = with_long_sets()
    lists = lists_of(manifest)
    damaged = {"gone": b"", "cut": lists[:-1], "changed": lists[:-1] + bytes([lists[-1] ^ 1])}[damage]
    read = from_json(
        to_json(manifest), "/lake/date=D/_manifest.json", lambda at, size: damaged[at : at + size]
    )
    with pytest.raises(LedgerBroken, match=r"names in _offsets\.roaring"):
        require_lists(read)


def sealed(body: dict[str, Any]) -> bytes:
    """Write a document with a checksum that fits, as a bug of a writer would."""
    rest = {key: value for key, value in body.items() if key not in ("format_version", "checksum")}
    return json.dumps({"format_version": FORMAT_VERSION, "checksum": checksum_of(rest)} | rest).encode()


def refused(text: bytes) -> str:
    with pytest.raises(LedgerBroken) as stopped:
        from_json(text, "/lake/date=2026-03-29/_manifest.json")
    assert "/lake/date=2026-03-29/_manifest.json" in str(stopped.value)
    return str(stopped.value)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"text"', b"{}", b"[" * 100_000, b'{"a":1}', b"\x00" * 50],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    refused(text)


@given(st.integers(0, len(to_json(manifests.full())) - 2), st.binary(max_size=3))
def test_a_cut_or_overwritten_manifest_is_refused_or_says_the_same(at: int, put: bytes) -> None:
    text = to_json(manifests.full())
    refused(text[:at])
    changed = text[:at] + put + text[at + len(put) :]
    with suppress(LedgerBroken):
        assert from_json(changed, "here") == manifests.full()


def test_an_edited_number_is_noticed() -> None:
    text = to_json(manifests.full())
    assert b'"seen_until": 30' in text
    assert "checksum" in refused(text.replace(b'"seen_until": 30', b'"seen_until": 31'))


@pytest.mark.parametrize("version", [0, 5, 99, "1", None, 1.5])
def test_another_format_is_refused_and_named(version: object) -> None:
    document = json.loads(to_json(manifests.full()))
    said = refused(json.dumps(document | {"format_version": version}).encode())
    assert f"format {version!r}" in said


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("extra", to=1),
        _set("next", "partitions", 0, "extra", to=1),
        _set("run_id", to=7),
        _set("missing_pending", to="1"),
        _set("missing_pending", to=1.0),
        _set("day", "start", to="2026-03-28T23:00:00"),
        _set("day", "start", to="2026-03-29T00:00:00+01:00"),
        _set("day", "end", to="2026-01-01T00:00:00Z"),
        _set("next", "partitions", 0, "pending", to=[[5, 5]]),
        _set("next", "partitions", 0, "pending", to=[[28, 40]]),
        _set("next", "partitions", 0, "pending", to=[["a", "b"]]),
        _set("next", "partitions", 0, "pending", to=[[1, 2, 3]]),
        _set("next", "partitions", 0, "pending", to=7),
        _set("next", "partitions", 0, "seen_until", to=-1),
        _set("spans", 0, "until_offset", to=3),
        _set("tally", 0, "rows", to=1000),
        _set("tally", 0, "verdict", to="lost"),
        _set("files", 0, "rows", to=7),
        _set("contract", to=[1]),
        _set("contract", to="\ud800"),
        _set("versions", to=None),
        _set("earlier", to=1),
        _set("earlier", 0, "days", to=0),
        _set("earlier", 0, "days", to=2),
        _set("earlier", 0, "days", to=10**15),
        _set("earlier", 0, "seconds", to=-1),
        _set("earlier", 0, "seconds", to=82_800),
        _set("earlier", 0, "extra", to=1),
    ],
)
def test_a_manifest_that_breaks_a_law_is_refused_though_its_checksum_fits(
    change: Callable[[dict[str, Any]], None],
) -> None:
    document = json.loads(to_json(manifests.full()))
    from_json(sealed(document), "here")
    change(document)
    try:
        text = sealed(document)
    except UnicodeEncodeError:
        text = json.dumps(document).encode()
    refused(text)


@pytest.mark.parametrize("field", sorted(json.loads(to_json(manifests.full()))))
def test_a_missing_field_is_refused(field: str) -> None:
    document = json.loads(to_json(manifests.full()))
    del document[field]
    text = json.dumps(document).encode() if field in ("checksum", "format_version") else sealed(document)
    refused(text)
