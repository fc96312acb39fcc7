"""What Kafka still shows of a day's reads, compared with what was delivered to the day.

Relies on a TopicReader. What retention and compaction took since is counted; all else must still be there,
and nothing more.
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
    """Read a day's spans again while they are retained; `compacted` is whether the log ever was."""
    day, topic = manifest.day.date, manifest.topic
    described = reader.describe(topic.name)
    if described.identity != topic:
        was, is_ = (f"{each.topic_id} in cluster {each.cluster_id}" for each in (topic, described.identity))
        return AgainstKafka(), [f"{day}: topic {topic.name} was recreated: it was {was}, and is {is_}"]
    compacted = bool(described.compacted or compacted)
    visible = gone = taken = 0
    problems: list[str] = []
    kept = [span for span in manifest.spans if span.partition in described.partitions]
    found, log_offsets = _visible(reader, topic.name, kept)
    anchors = _anchor_problems(reader, manifest, log_offsets, compacted)
    for span, gap in zip(manifest.spans, manifest.gaps, strict=True):
        where = f"{day}: partition {span.partition}"
        if span.partition not in log_offsets:
            problems.append(f"{where} is not there any more")
            continue
        retained = span.reads.within(log_offsets[span.partition].log_start, span.until_offset)
        shown = found[span.partition] & retained
        delivered = retained - gap.offsets
        visible += len(shown)
        gone += len(span.reads - retained)
        if dropped := shown - delivered:
            problems.append(f"{where}: Kafka shows {dropped}, which the run was not given")
        if missing := delivered - shown:
            taken += len(missing)
            if not compacted:
                problems.append(f"{where}: Kafka does not show {missing}, which the run was given")
        problems += anchors.get(span.partition, ())
    return AgainstKafka(visible=visible, gone=gone, compacted=taken if compacted else 0), problems


def _visible(
    reader: TopicReader, topic: str, spans: Sequence[Span]
) -> tuple[dict[int, Offsets], dict[int, LogOffsets]]:
    """Read what is visible of spans; where retention takes some of it meanwhile, go on above that.

    The edges returned are the last ones seen: what was read below them has gone since.
    """
    left = {span.partition: span.reads for span in spans}
    found: dict[int, list[Offsets]] = {part: [] for part in left}
    log_offsets = reader.log_offsets(topic, left)
    while True:
        left = {
            part: reads.within(log_offsets[part].log_start, log_offsets[part].last_stable)
            for part, reads in left.items()
        }
        wanted = {
            part: (from_, min(from_ + AT_ONCE, until))
            for part, reads in left.items()
            for from_, until in islice(reads, 1)
        }
        if not wanted:
            return {part: joined(sets) for part, sets in found.items()}, log_offsets
        try:
            seen = reader.present_of(topic, wanted)
        except OffsetsLost:
            log_offsets = reader.log_offsets(topic, left)
            continue
        for part, (_, until) in wanted.items():
            found[part].append(seen[part])
            left[part] = left[part].within(until, log_offsets[part].last_stable)


def _anchor_problems(
    reader: TopicReader, manifest: Manifest, log_offsets: Mapping[int, LogOffsets], compacted: bool
) -> dict[int, list[str]]:
    """Check that the last record below the next checkpoint is the one that was read."""
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
