"""What Kafka still shows of a day's reads, held against what the day was delivered.

Relies on a TopicReader. What retention has taken since is counted, and so is what compaction took; all
else must be there, and nothing more.
"""

from __future__ import annotations

from typing import Final

from jobs.verify.figures import AgainstKafka
from offsets.errors import OffsetsLost, TopicChanged
from offsets.model import Manifest, Span, Watermarks, is_compacted
from offsets.plan import check_anchor
from offsets.ranges import Offsets, joined
from offsets.survey import anchored
from offsets.topic import TopicReader

AT_ONCE: Final = 500_000
"""So many offsets are read before the broker is asked anew."""


def compare(reader: TopicReader, manifest: Manifest) -> tuple[AgainstKafka, list[str]]:
    """Read a day's spans again while they are retained."""
    day, topic = manifest.day.date, manifest.topic
    described = reader.describe(topic.name)
    if described.identity != topic:
        was, is_ = (f"{each.topic_id} in cluster {each.cluster_id}" for each in (topic, described.identity))
        return AgainstKafka(), [f"{day}: topic {topic.name} was recreated: it was {was}, and is {is_}"]
    compacted = bool(described.compacted or is_compacted(manifest.cleanup_policy))
    visible = gone = taken = 0
    problems: list[str] = []
    for span, gap in zip(manifest.spans, manifest.gaps, strict=True):
        where = f"{day}: partition {span.partition}"
        if span.partition not in described.partitions:
            problems.append(f"{where} is not there any more")
            continue
        found, edges = _visible(reader, topic.name, span)
        retained = span.reads.within(edges.log_start, span.until_offset)
        delivered = retained - gap.offsets
        visible += len(found)
        gone += len(span.reads - retained)
        if dropped := found - delivered:
            problems.append(f"{where}: Kafka shows {dropped}, which the run was not given")
        if missing := delivered - found:
            taken += len(missing)
            if not compacted:
                problems.append(f"{where}: Kafka does not show {missing}, which the run was given")
        problems += _anchor_problems(reader, manifest, span.partition, edges, compacted)
    return AgainstKafka(visible=visible, gone=gone, compacted=taken if compacted else 0), problems


def _visible(reader: TopicReader, topic: str, span: Span) -> tuple[Offsets, Watermarks]:
    """Read what is visible of a span; begin anew where retention takes some of it meanwhile."""
    while True:
        edges = reader.watermarks(topic, [span.partition])[span.partition]
        kept = span.reads.within(edges.log_start, edges.high)
        try:
            found = joined(
                reader.present(topic, span.partition, at, min(at + AT_ONCE, until))
                for from_, until in kept
                for at in range(from_, until, AT_ONCE)
            )
        except OffsetsLost:
            continue
        return found, edges


def _anchor_problems(
    reader: TopicReader, manifest: Manifest, partition: int, edges: Watermarks, compacted: bool
) -> list[str]:
    """Check that the last record below the next checkpoint is the one that was read."""
    checkpoint = manifest.next.of(partition)
    if checkpoint is None:
        return []
    seen = anchored(reader, manifest.topic.name, checkpoint, edges)
    try:
        check_anchor(checkpoint, edges.log_start, seen, compacted)
    except TopicChanged as changed:
        return [f"{manifest.day.date}: {changed}"]
    return []
