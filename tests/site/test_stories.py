"""The pages that lead a reader from command to command do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories import ROOT, Command, Program, alike, check, steps_of

STORIES = [
    "docs/get-started.md",
    "docs/how-to/change-a-stateful-query.md",
    "docs/how-to/corrupt-checkpoint.md",
    "docs/how-to/move-a-query.md",
    "docs/how-to/roll-back-a-deploy.md",
]
ELSEWHERE = {
    "docs/how-to/README.md": "has no commands",
    "docs/how-to/kafka-to-delta.md": "tests/integration/test_kafka_to_delta.py",
    "docs/how-to/kubernetes.md": "tests/site/test_kubernetes.py",
}


@pytest.mark.spark
@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", STORIES)
def test_a_reader_who_types_what_a_page_says_sees_what_it_shows(page: str, tmp_path: Path) -> None:
    check(page, tmp_path)


def test_every_how_to_page_is_run_by_a_test() -> None:
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/how-to/*.md")}
    assert pages == {*ELSEWHERE, *(page for page in STORIES if "how-to" in page)}


def test_files_and_commands_are_found_in_their_order() -> None:
    steps = steps_of("docs/how-to/move-a-query.md")
    assert isinstance(steps[0], Program)
    assert steps[0].name == "counts.py"
    assert steps[3] == Command("python counts.py /data/old", "[('ann', 1)]\n")


def test_outputs_of_two_runs_are_alike_when_only_times_and_sizes_differ() -> None:
    one = "checkpoint 1 · batch 6 · full · 23 files, 21 KiB · 0.05 s\n"
    assert alike(one) == alike("checkpoint 1 · batch 6 · full · 23 files, 9\n  B · 12 ms")
    assert alike(one) != alike(one.replace("23", "24"))
