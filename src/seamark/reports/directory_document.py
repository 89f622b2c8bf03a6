"""The checkpoint directory of a Spark query as a plain document.

Tests: ``tests/cli/spark/test_inspect.py``.
"""

from __future__ import annotations

from seamark.native.inspect.inspection import Inspection
from seamark.native.inspect.operators import OperatorSummary
from seamark.reports.document import Document


def directory_document(inspection: Inspection) -> Document:
    """What ``seamark spark inspect --json`` prints."""
    return {
        "path": inspection.url,
        "query_id": inspection.query_id,
        "spark": inspection.spark,
        "offset_log": inspection.offset_log,
        "checkpoint_format": inspection.checkpoint_format,
        "batches": {
            "first": inspection.offsets[0] if inspection.offsets else None,
            "last": inspection.offsets[-1] if inspection.offsets else None,
            "kept": len(inspection.offsets),
        },
        "committed": inspection.committed,
        "planned": inspection.planned,
        "watermark_ms": inspection.watermark_ms,
        "sources": [
            {"name": s.name, "kind": s.kind or None, "folder": s.folder, "offset": s.offset}
            for s in inspection.sources
        ],
        "operators": [_operator_document(operator) for operator in inspection.operators],
        "settings": inspection.settings,
        "files": inspection.files,
        "bytes": inspection.size,
        "restorable": inspection.restorable,
        "would_do": {
            "action": str(inspection.would_do.action),
            "batch": inspection.would_do.batch,
            "text": inspection.would_do.text,
        },
        "findings": [
            {
                "code": str(finding.code),
                "severity": str(finding.severity),
                "path": finding.path,
                "message": finding.message,
                "advice": finding.advice,
            }
            for finding in inspection.findings
        ],
        "unread_files": inspection.unread,
    }


def _operator_document(operator: OperatorSummary) -> Document:
    return {
        "number": operator.number,
        "name": operator.name,
        "partitions": operator.partitions,
        "stores": operator.stores,
        "provider": operator.provider,
        "version": operator.version,
        "complete": operator.is_complete,
        "files": operator.files,
        "bytes": operator.size,
        "partition_bytes": {str(n): size for n, size in operator.partition_sizes.items()},
    }
