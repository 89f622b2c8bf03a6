"""``seamark bisect``: find the first epoch for which a test fails."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Final

import click

from seamark._common.text import grouped
from seamark.cli.commands import PLACE, Command, settings
from seamark.cli.layout import plural, print_paragraph, print_rows, print_warnings
from seamark.cli.output import Document, print_answer, print_hint, progress_bar, styled
from seamark.cli.spark.arguments import own_class_option
from seamark.cli.store_argument import opened_store
from seamark.errors import RefusedError
from seamark.native.bisection import (
    Bisection,
    Candidate,
    Verdict,
    bisect,
    restored_test,
    span_of,
)
from seamark.reports.named_checkpoints import use_ids

_CANNOT_TELL: Final = 125
"""The exit code with which a test says that it cannot decide, as for ``git bisect run``."""
_NOT_RUN: Final = (126, 127)
"""The shell's exit codes for a command that cannot be run."""


@click.command("bisect", cls=Command)
@click.argument("store", type=PLACE)
@click.option(
    "--test",
    "test",
    required=True,
    metavar="COMMAND",
    help="Run with {dir} and {epoch} filled in: 0 is good, 125 cannot tell, others are bad.",
)
@click.option("--good", "good_id", metavar="ID", help="A checkpoint that is known to be good.")
@click.option("--bad", "bad_id", metavar="ID", help="A checkpoint that is known to be bad.")
@own_class_option
def command(
    store: str,
    test: str,
    good_id: str | None,
    bad_id: str | None,
    own_classes: tuple[str, ...],
) -> None:
    """Find the first epoch for which a test fails.

    The epochs are halved until it is found. For each one that is tried, Spark's checkpoint
    directory is restored as it was after it, and COMMAND is run by the shell. {dir} is the
    directory and {epoch} the number of the epoch; both are also in SEAMARK_DIR and SEAMARK_EPOCH.
    The directory is removed afterwards. Nothing in the store is changed.
    """
    with opened_store(store) as opened:
        given = {"good": good_id, "bad": bad_id}
        names = {known: name for known, name in given.items() if name is not None}
        span = use_ids(
            opened,
            names.values(),
            lambda *ids: span_of(opened, **dict(zip(names, ids, strict=True))),
        )
        judged = restored_test(opened, lambda epoch, path: _run(test, epoch, path), own_classes)
        with progress_bar("testing", span.most_tests) as advance:
            found = bisect(span, judged, lambda _: advance(1))
        document = _document(opened.url, found)
    print_answer(document, _show)
    good, bad = found.last_good, found.first_bad
    if good is not None and bad is not None and not settings().as_json:
        both = f"{good.checkpoint_id} {bad.checkpoint_id}"
        print_hint(f"What changed?  seamark diff {shlex.quote(store)} {both}")


def _run(test: str, epoch: int, path: Path) -> Verdict:
    line = test.replace("{dir}", shlex.quote(str(path))).replace("{epoch}", str(epoch))
    environment = {**os.environ, "SEAMARK_DIR": str(path), "SEAMARK_EPOCH": str(epoch)}
    # what a test prints is for people; --json has the standard output to itself
    done = subprocess.run(["sh", "-c", line], env=environment, stdout=2, check=False)
    if done.returncode < 0 or done.returncode in _NOT_RUN:
        raise RefusedError(
            f"the test could not be run for epoch {epoch} (exit code {done.returncode})",
            where=test,
            hint="That says nothing about the epoch. Mend the command and start again.",
        )
    if done.returncode == _CANNOT_TELL:
        return Verdict.SKIPPED
    return Verdict.GOOD if done.returncode == 0 else Verdict.BAD


def _document(url: str, found: Bisection) -> Document:
    def of(candidate: Candidate | None) -> Document | None:
        if candidate is None:
            return None
        return {"epoch": candidate.epoch, "id": candidate.checkpoint_id}

    return {
        "store": url,
        "first_bad": of(found.first_bad),
        "last_good": of(found.last_good),
        "skipped_between": [of(candidate) for candidate in found.between],
        "left_out": found.left_out,
        "tests": [
            {"epoch": each.epoch, "id": each.checkpoint_id, "verdict": each.verdict.value}
            for each in found.tried
        ],
    }


def _show(document: Document) -> None:
    tests = document["tests"]
    print_rows(
        ("EPOCH", "CHECKPOINT", "VERDICT"),
        [[str(each["epoch"]), str(each["id"]), styled(each["verdict"])] for each in tests],
        right="EPOCH CHECKPOINT",
    )
    bad, good = document["first_bad"], document["last_good"]
    left_out = document["left_out"]
    if not tests and bad is None and not left_out:
        text = "There is no epoch to test."
    elif bad is None and good is None:
        text = "No epoch could be tested."
    elif bad is None:
        text = "No epoch fails the test."
    elif document["skipped_between"]:
        among = ", ".join(str(each["epoch"]) for each in document["skipped_between"])
        text = f"The first bad epoch is {bad['epoch']}, or one that was skipped: {among}."
    else:
        text = f"The first bad epoch is {bad['epoch']} (checkpoint {bad['id']})."
    if bad is not None and good is not None:
        text += f" The last good one is {good['epoch']} (checkpoint {good['id']})."
    print_paragraph(f"{text} {plural(len(tests), 'test')}.", gap=bool(tests))
    if left_out:
        were = "epoch was" if left_out == 1 else "epochs were"
        why = "a checkpoint that they build on is gone or damaged"
        print_warnings([f"{grouped(left_out)} {were} left out: {why}"])
