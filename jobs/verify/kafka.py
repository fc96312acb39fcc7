"""Compare the records that Kafka still shows in a day's spans with those that were delivered to the day.

Relies on a TopicReader. Records that retention and compaction removed since are counted; all others must
still be there, and no further ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from jobs.verify.result import AgainstKafka
from offsets.day_plan import LogOffsets, Span
from offsets.errors import OffsetsLost, TopicChanged
from offsets.kafka.offset_lookup import read_anchor
from offsets.kafka.reader import TopicReader, look_together
from offsets.manifest import Manifest
from offsets.plan import check_anchor
from offsets.ranges import Offsets, joined

AT_ONCE: Final = 500_000
"""How many offsets of a partition are read per question to the broker."""


def compare(reader: TopicReader, manifest: Manifest, *, compacted: bool) -> tuple[AgainstKafka, list[str]]:
    """Read a day's spans again, as far as retained; `compacted` says whether the log was ever compacted."""
    day, topic = manifest.day.date, manifest.topic
    described = reader.describe(topic.name)
    if described.identity != topic:
        was, is_ = (
            f"{identity.topic_id} in cluster {identity.cluster_id}"
            for identity in (topic, described.identity)
        )
        return AgainstKafka(), [f"{day}: topic {topic.name} was recreated: it was {was}, and is {is_}"]
    compacted = bool(described.compacted or compacted)
    visible = gone = compacted_away = 0
    problems: list[str] = []
    kept = [span for span in manifest.spans if span.partition in described.partitions]
    visible_offsets, log_offsets = _visible(reader, topic.name, kept)
    anchors = _anchor_problems(reader, manifest, log_offsets, compacted)
    for span, gap in zip(manifest.spans, manifest.gaps, strict=True):
        where = f"{day}: partition {span.partition}"
        if span.partition not in log_offsets:
            problems.append(f"{where} is not there any more")
            continue
        retained = span.reads.within(log_offsets[span.partition].log_start, span.until_offset)
        shown = visible_offsets[span.partition] & retained
        delivered = retained - gap.offsets
        visible += len(shown)
        gone += len(span.reads - retained)
        if dropped := shown - delivered:
            problems.append(f"{where}: Kafka shows {dropped}, which the run was not given")
        if missing := delivered - shown:
            compacted_away += len(missing)
            if not compacted:
                problems.append(f"{where}: Kafka does not show {missing}, which the run was given")
        problems += anchors.get(span.partition, ())
    return AgainstKafka(visible=visible, gone=gone, compacted=compacted_away if compacted else 0), problems


def count_unread(reader: TopicReader, newest: Manifest) -> int:
    """Count the offsets that lie behind what the newest day has read."""
    described = reader.describe(newest.topic.name)
    seen = {part.partition: part.seen_until for part in newest.next.partitions}
    ends = reader.log_offsets(newest.topic.name, described.partitions)
    return sum(max(end.high - max(seen.get(part, 0), end.log_start), 0) for part, end in ends.items())


def _visible(
    reader: TopicReader, topic: str, spans: Sequence[Span]
) -> tuple[dict[int, Offsets], dict[int, LogOffsets]]:
    """Read the visible offsets of spans; if retention moves a log start meanwhile, continue after it.

    The log offsets returned are the latest: offsets that were read below their log start are gone since.
    """
    unread = {span.partition: span.reads for span in spans}
    visible: dict[int, list[Offsets]] = {part: [] for part in unread}
    log_offsets = reader.log_offsets(topic, unread)
    while True:
        unread = {
            part: reads.within(log_offsets[part].log_start, log_offsets[part].last_stable)
            for part, reads in unread.items()
        }
        wanted = {
            part: (from_, min(from_ + AT_ONCE, until))
            for part, reads in unread.items()
            for from_, until in islice(reads, 1)
        }
        if not wanted:
            return {part: joined(sets) for part, sets in visible.items()}, log_offsets
        try:
            present = reader.present_of(topic, wanted)
        except OffsetsLost:
            log_offsets = reader.log_offsets(topic, unread)
            continue
        for part, (_, until) in wanted.items():
            visible[part].append(present[part])
            unread[part] = unread[part].within(until, log_offsets[part].last_stable)


def _anchor_problems(
    reader: TopicReader, manifest: Manifest, log_offsets: Mapping[int, LogOffsets], compacted: bool
) -> dict[int, list[str]]:
    """Check that the last record below the next checkpoint is still the recorded anchor."""
    kept = [part for part in manifest.next.partitions if part.partition in log_offsets]
    looks = {part.partition: read_anchor(part, log_offsets[part.partition]) for part in kept}
    seen = look_together(reader, manifest.topic.name, looks)
    problems: dict[int, list[str]] = {}
    for part in kept:
        try:
            check_anchor(part, log_offsets[part.partition].log_start, seen[part.partition], compacted)
        except TopicChanged as changed:
            problems[part.partition] = [f"{manifest.day.date}: {changed}"]
    return problems
