"""What a pipeline does and promises, as a page of text.

Tests: ``tests/pipeline/test_asking_and_refusing.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from seamark.pipeline.declaration.compile import Compiled
from seamark.pipeline.declaration.computed_changes import operator_text
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.progress.configuration import config_hash
from seamark.spark.plans.lossy_options import recorded_losses
from seamark.spark.plans.plan import SourceInfo


def explanation(declared: DeclaredPipeline, sources: Mapping[str, SourceInfo]) -> str:
    """Sources, operators, watermarks, sinks and guarantees of a compiled pipeline."""
    compiled, identity = declared.compiled, declared.identity
    structure = identity.structure
    lines = [
        f"Pipeline {identity.name} · {structure['output_mode']} mode · "
        f"hash {config_hash(structure):016x}"
    ]
    lines += ["", "Sources"]
    for name, times in Counter(compiled.leaves).items():
        info = sources[name]
        options = ", ".join(f"{key}={value}" for key, value in info.options.items())
        read = "read once an epoch" if times == 1 else f"read {times} times an epoch"
        lines.append(f"  {name:<14} {info.format}{f' ({options})' if options else ''} · {read}")
        lines += [" " * 17 + info.begins] if info.begins else []
    lines += ["", "State"]
    lines += list(_state(compiled)) or ["  none: nothing is kept"]
    for branch in compiled.branches:
        first, *others = [compiled.outputs[number].name for number in branch.outputs]
        if others:
            lines.append(f"  {first} shares its state with {', '.join(others)}")
    if compiled.operators:
        lines.append(f"  in {structure['state_partitions']} partitions")
    lines += ["", "Watermark"]
    lines += _watermarks(compiled)
    lines += ["", "Sinks"]
    for output in compiled.outputs:
        described = output.sink.describe()
        reads = ", ".join(compiled.sources_of[output.name])
        lines.append(
            f"  {output.name:<14} {described.kind} {described.target} · from {reads} · "
            f"{output.sink.guarantee.value}"
        )
        if not output.sink.guarantee.is_transactional:
            lines.append(" " * 17 + "outside the epoch's atomic commit")
    lines += [f"\nNote: {text}" for text in [*compiled.warnings, *recorded_losses(structure)]]
    if compiled.python_functions:
        names = ", ".join(compiled.python_functions)
        lines.append(
            f"\nNote: what Python functions do is not compared between starts, only their names "
            f"({names})"
        )
    return "\n".join(lines)


def _state(compiled: Compiled) -> Iterator[str]:
    for name, operators in compiled.computes.items():
        for operator in operators:
            if operator["operator"] != "watermark":
                yield f"  {name}: {operator['operator']}{operator_text(operator)}"


def _watermarks(compiled: Compiled) -> list[str]:
    if not compiled.watermarks:
        return ["  none"]
    lines = [
        f"  {mark.column} of {', '.join(mark.sources)}, {mark.delay_ms / 1000:g} s late at most, "
        "later rows are dropped"
        for mark in compiled.watermarks
    ]
    if len(compiled.watermarks) > 1:
        lines.append("  the slowest of them rules all outputs")
    return lines
