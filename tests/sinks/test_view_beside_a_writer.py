"""A driver that asks a live view while another one rolls it back gets the answer of one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from seamark.errors import DamageError
from seamark.progress import open_progress
from seamark.sinks.keyvalue import view
from seamark.testing.conformance.interleaving import Steps, spread
from seamark.testing.conformance.sink_examples import NEW
from tests.sinks.support.views import HandWrittenView, World, rows_of, told


@contextmanager
def after_the_first_look(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]
) -> Iterator[None]:
    """Another driver does something right after it was read what the view shows.

    It is another thread: in RocksDB its sessions wait for one that is open.
    """
    this, real = threading.current_thread(), view._found
    other = threading.Thread(target=do)

    def beside(reader: Any, key: bytes, kind: type[Any]) -> Any:
        found = real(reader, key, kind)
        if key == b"newest" and threading.current_thread() is this and other.ident is None:
            other.start()
            other.join(1)
        return found

    monkeypatch.setattr(view, "_found", beside)
    yield
    other.join()


def filled(world: World, last: int = 3) -> tuple[HandWrittenView, HandWrittenView]:
    """A view that shows some epochs, through two handles that can take them back."""
    world.run(range(1, last + 1), undo=True, keep_epochs=20)
    return world.handle(undo=True, keep_epochs=20), world.handle(undo=True, keep_epochs=20)


def test_a_view_is_never_called_empty_beside_a_rollback(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = filled(world)
    with after_the_first_look(monkeypatch, lambda: other.unpublish_after(2)):
        newest = reader.newest()
    assert newest is not None
    assert newest.epoch in (2, 3)


def test_a_view_that_is_rolled_back_and_goes_on_shows_one_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = filled(world)

    def go_on_elsewhere() -> None:
        other.unpublish_after(2)
        world.show(other, told(3, NEW), *rows_of(3))

    before = reader.newest()
    with after_the_first_look(monkeypatch, go_on_elsewhere):
        found = reader.newest()
    assert found is not None
    assert found == before or found.timeline == NEW


def test_an_epoch_that_is_prepared_beside_a_rollback_is_not_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = filled(world)
    with after_the_first_look(monkeypatch, lambda: other.unpublish_after(2)):
        follows = reader._view.followed_by(told(3, NEW))
    assert follows is not None
    assert follows.epoch in (2, 3)


def test_a_view_that_another_driver_takes_back_can_be_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = filled(world, 5)
    with after_the_first_look(monkeypatch, lambda: other.unpublish_after(2)):
        reader.require_unpublish_after(2)
    reader.unpublish_after(2)
    newest = reader.newest()
    assert newest is not None
    assert newest.epoch == 2


def test_a_commit_that_ends_late_leaves_what_others_have_kept_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = filled(world, 1)
    committable = world.prepare(late, told(2), *rows_of(2))
    show = late._view.show

    def overtaken(*about: Any) -> bool:
        is_newest = show(*about)
        other.commit(committable)
        world.show(other, told(3), *rows_of(3))
        return is_newest

    monkeypatch.setattr(late._view, "show", overtaken)
    late.commit(committable)
    assert world.kept() == [1, 2, 3]
    assert other.unpublish_after(1) == [2, 3]
    assert world.epoch() == 1


def test_a_rollback_that_ends_late_leaves_what_others_have_kept_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = filled(world)
    in_session = late._view.in_session

    def overtaken(work: Any) -> Any:
        found = in_session(work)
        if world.epoch() == 1:
            world.show(other, told(2, NEW), *rows_of(2))
        return found

    monkeypatch.setattr(late._view, "in_session", overtaken)
    assert late.unpublish_after(1) == [2, 3]
    assert world.kept() == [1, 2]
    assert other.unpublish_after(1) == [2]


@pytest.mark.parametrize("kept", [70, 80])
def test_a_view_that_goes_back_by_many_epochs_knows_what_it_shows(world: World, kept: int) -> None:
    sink = world.handle(undo=True, keep_epochs=kept)
    shown = [world.show(sink, told(n), {"n": 1, "at": n}) for n in range(1, 73)]
    assert len(sink.unpublish_after(2)) == 70
    newest = sink.newest()
    assert newest is not None
    assert newest.epoch == 2
    sink.commit(shown[1])
    assert world.epoch() == 2


def test_a_view_without_a_record_of_what_it_shows_is_damaged_and_not_empty(world: World) -> None:
    sink = world.handle()
    world.show(sink, told(1), *rows_of(1))
    with sink._view.store.session() as session:
        session.delete(view.EPOCHS, view.epoch_key(1))
    newest = sink.newest()
    assert newest is not None
    assert newest.epoch == 1, "what is kept of the epoch tells"
    sink._staging.forget(sink._staging.kept_after(0))
    with pytest.raises(DamageError, match="shows epoch 1, and has no record of it"):
        sink.newest()
    with open_progress(sink._view.store.url, read_only=True) as store:
        assert store.get(view.EPOCHS, b"newest") is not None


# an epoch moves from where it is staged to where it is kept, once it is shown

STEPS = r"^(lstat|stat|open|read_table)$"


@contextmanager
def not_kept(sink: HandWrittenView) -> Iterator[Callable[[], None]]:
    """A driver that stops when it has shown an epoch, before it keeps it; how it goes on."""
    put_aside, waiting = sink._staging.put_aside, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink._staging, "put_aside", waiting.append)
        yield lambda: put_aside(waiting[-1])


def test_an_epoch_that_its_driver_keeps_meanwhile_is_taken_back(world: World) -> None:
    _, other = filled(world)
    steps = Steps(HandWrittenView, STEPS)
    count = 3 * steps.count(partial(other.require_unpublish_after, 2))
    for at in spread(count, 24):
        sink = world.handle(undo=True, keep_epochs=20)
        with not_kept(sink) as keep:
            world.show(sink, told(4, f"{NEW[:-4]}{at:04}"), *rows_of(4))
            met = steps.overlap(partial(other.unpublish_after, 3), at, keep, 0.2)
        assert (met.first_error, met.other_error) == (None, None), met
        assert (met.first, world.epoch()) == ([4], 3), met


def test_a_missing_epoch_that_its_driver_keeps_meanwhile_is_made_up_for(world: World) -> None:
    world.run(range(1, 3))
    older = world.save()
    sink = world.handle()
    with not_kept(sink):
        world.show(sink, told(3), *rows_of(3))
    last = world.prepare(world.handle(), told(4), *rows_of(4))
    (staged,) = (path.parent for path in world.staging.glob("staging/*/epoch=000003"))
    kept = world.staging / "kept" / staged.name
    world.bring_back(older)
    steps = Steps(HandWrittenView, STEPS)
    count = steps.count(partial(world.handle().commit, last))
    for at in spread(count, 24):
        world.bring_back(older)
        if kept.exists():
            kept.rename(staged)
        commit = partial(world.handle().commit, last)
        met = steps.overlap(commit, at, partial(staged.rename, kept), 0.2)
        assert (met.first_error, met.other_error) == (None, None), met
        assert world.epoch() == 4, met


def test_an_epoch_that_is_shown_while_it_is_aborted_can_be_taken_back(world: World) -> None:
    _, other = filled(world)
    steps = Steps(HandWrittenView)

    def abort() -> None:
        for attempt in other.leftovers():
            other.abort(attempt)

    world.prepare(world.handle(undo=True, keep_epochs=20), told(4, NEW), *rows_of(4))
    for at in spread(steps.count(abort), 24):
        sink = world.handle(undo=True, keep_epochs=20)
        committable = world.prepare(sink, told(4, f"{NEW[:-4]}{at:04}"), *rows_of(4))
        with not_kept(sink) as keep:
            met = steps.overlap(abort, at, partial(sink.commit, committable), 0.2)
        assert met.first_error is None, met
        if met.other_error is None:
            keep()
            assert other.unpublish_after(3) == [4], met
        else:
            assert isinstance(met.other_error, DamageError), met
        assert (world.epoch(), other.leftovers()) == (3, []), met
