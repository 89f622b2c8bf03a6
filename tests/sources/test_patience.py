"""A source that gives no answer is asked again, and not for longer than is allowed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from seamark.errors import PositionUnavailable, SourceSilentError, SourceUnavailableError
from seamark.sources import patience
from seamark.sources.patience import answered_within


class Origin:
    """Gives no answer for some questions, then one, or an error."""

    def __init__(self, silent: int, error: Exception | None = None) -> None:
        self.silent = silent
        self.error = error
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.silent:
            raise SourceSilentError("no answer")
        if self.error is not None:
            raise self.error
        return "an answer"


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE", 0.001)


def test_it_is_asked_until_it_answers() -> None:
    origin = Origin(silent=3)
    assert answered_within(300, origin, "source 't'") == "an answer"
    assert origin.asked == 4


@pytest.mark.parametrize(
    "error", [PositionUnavailable("gone"), SourceUnavailableError("no login"), ValueError("odd")]
)
def test_an_answer_that_is_an_error_is_no_silence(error: Exception) -> None:
    origin = Origin(silent=1, error=error)
    with pytest.raises(type(error)) as raised:
        answered_within(300, origin, "source 't'")
    assert raised.value is error
    assert origin.asked == 2


def test_when_the_time_is_over_the_last_error_is_told() -> None:
    with pytest.raises(SourceSilentError, match="no answer"):
        answered_within(0.05, Origin(silent=1 << 30), "source 't'")


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    released = threading.Event()
    yield released
    released.set()


def test_a_question_that_never_ends_is_left_alone(hanging: threading.Event) -> None:
    with pytest.raises(SourceSilentError, match=r"source .t. gave no answer within 0\.05 s"):
        answered_within(0.05, hanging.wait, "source 't'")


def test_whoever_has_to_stop_waits_no_longer(hanging: threading.Event) -> None:
    with pytest.raises(SourceSilentError):
        answered_within(1e9, hanging.wait, "source 't'", lambda: True)
    with pytest.raises(SourceSilentError):
        answered_within(1e9, Origin(silent=1 << 30), "source 't'", lambda: True)
