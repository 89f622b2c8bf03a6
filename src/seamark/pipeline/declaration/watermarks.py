"""One watermark for all outputs: what one query can give them, and what it cannot. Pure.

Spark makes one watermark of all ``withWatermark`` of a query. An output must get the one that it
has alone: a slower one keeps its rows back, a faster one drops them as late.

Tests: ``tests/pipeline/test_watermarks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seamark.errors import RefusedError
from seamark.spark.plans.plan import WatermarkInfo


def require_shared_sources(reads: Mapping[str, set[str]], *, has_watermark: bool) -> list[str]:
    """Warnings about outputs that share no source; :class:`RefusedError` beside a watermark."""
    groups: list[tuple[set[str], set[str]]] = []
    for name, sources in reads.items():
        touching = [group for group in groups if group[1] & sources]
        merged = ({name}, set(sources))
        for names, read in touching:
            merged = (merged[0] | names, merged[1] | read)
        groups = [group for group in groups if group not in touching] + [merged]
    if len(groups) < 2:
        return []
    apart = "; ".join(f"{', '.join(sorted(n))} read {', '.join(sorted(s))}" for n, s in groups)
    if has_watermark:
        raise RefusedError(
            "outputs that share no source cannot share a watermark",
            where=f"{apart}. Spark keeps one watermark for the whole query, so a quiet source "
            "would hold back the outputs of the others.",
            hint="Make a pipeline with a store of its own for each group.",
        )
    return [
        f"outputs share no source ({apart}): they commit together, so the slower source sets "
        "the pace. Two pipelines would be independent."
    ]


def require_same_watermark(marks: Mapping[str, Sequence[WatermarkInfo]]) -> None:
    """:class:`RefusedError` unless all outputs that have watermarks have the same ones."""
    groups: dict[frozenset[tuple[frozenset[int], int]], list[str]] = {}
    for output, of_output in marks.items():
        if of_output:
            groups.setdefault(frozenset(mark.counts for mark in of_output), []).append(output)
    if len(groups) < 2:
        return
    texts: list[str] = []
    lines: list[str] = []
    for names in groups.values():
        text = " and ".join(dict.fromkeys(map(watermark_text, marks[names[0]])))
        lines.append(f"{', '.join(names)}: {text}{', over other rows' if text in texts else ''}")
        texts.append(text)
    raise RefusedError(
        "outputs with different watermarks cannot be in one pipeline",
        where=f"{'; '.join(lines)}. Spark makes one watermark of them for the whole query. An "
        "output would wait for rows of another one or, with multipleWatermarkPolicy=max, lose rows "
        "that are late for another one only.",
        hint="Call withWatermark once, on the source and before any filter, and build all these "
        "outputs on what it returns. An output with another delay, another column or another "
        "stream in a join needs a pipeline with a store of its own. An output without state needs "
        "no withWatermark.",
    )


def delay_warnings(watermarks: Sequence[WatermarkInfo], policy: str) -> list[str]:
    """What to say about outputs that have several watermarks each, as a join of streams has."""
    if len({mark.delay_ms for mark in watermarks}) < 2:
        return []
    texts = ", ".join(dict.fromkeys(map(watermark_text, watermarks)))
    return [f"watermarks have different delays ({texts}): {which_counts(policy)}"]


def which_counts(policy: str) -> str:
    """Which of several watermarks is that of the query; ``policy`` is what the session says."""
    which = "fastest" if policy == "max" else "slowest"
    return (
        f"the {which} of them counts (multipleWatermarkPolicy={policy}; a store that has "
        "checkpoints keeps the policy that it was started with)"
    )


def watermark_text(mark: WatermarkInfo) -> str:
    """A watermark in words."""
    return f"{mark.column} of {', '.join(mark.sources)}, {mark.delay_ms / 1000:g} s late at most"
