"""A store that anybody may have written: markup in every name, secrets, and far too much of all."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from seamark.errors import InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.store import open_store
from seamark.ui.places import places_at
from tests.ui.support.serving import Client, serving
from tests.ui.support.stores import hostile, make_secret

SECRET = "hunter2-and-more"
PAGES = ("/", "/p/{p}", "/p/{p}/checkpoint/1", "/p/{p}/checkpoint/2", "/p/{p}/diff?a=1&b=2")
DOCUMENTS = ("/api/places", "/api/p/{p}/list", "/api/p/{p}/history", "/api/p/{p}/show/1")
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CHECKS = ("recover", "verify", "doctor")


class Elements(HTMLParser):
    """What a browser would make of a page: its elements and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


def all_pages(page: Client, place: str) -> list[str]:
    for check in CHECKS:
        page.post(f"/api/p/{place}/checks/{check}")
        page.until(f"/api/p/{place}/checks/{check}", lambda d: d["state"] != "running")
    paths = (*PAGES, "/p/{p}/restart")
    return [page.text(path.format(p=place)) for path in paths]


def test_whatever_a_store_says_is_text_and_never_markup(tmp_path: Path) -> None:
    hostile(tmp_path / "store")
    with serving(tmp_path / "store") as page:
        for text in all_pages(page, "store"):
            found = Elements()
            found.feed(text)
            assert not found.tags & {"b", "iframe", "object", "embed", "base", "style", "marquee"}
            assert text.count("<script") == text.count('<script type="module" src="/static/')
            for name, value in found.attributes:
                assert not name.startswith("on")
                assert name != "style"
                assert not (value or "").strip().lower().startswith(("javascript:", "data:"))
            assert (
                re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text) is None
            )
        assert "&lt;script&gt;" in page.text("/p/store/checkpoint/1")


@pytest.mark.parametrize("path", [*PAGES, *DOCUMENTS])
def test_no_answer_holds_a_secret(tmp_path: Path, path: str) -> None:
    make_secret(tmp_path / "store", SECRET)
    options = {"aws_secret_access_key": "A" * 20 + "/key", "other": "a-value-of-an-option"}
    with serving(tmp_path / "store", storage_options=options, token="tok-" * 5) as page:
        answer = page(path.format(p="store"), headers={"Authorization": f"Bearer {'tok-' * 5}"})
        assert answer.status == 200
        for secret in (SECRET, "a-value-of-an-option", "A" * 20, "tok-tok-"):
            assert secret not in answer.text


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:abc/{SECRET}@bucket",
        f"s3://AKIA:{SECRET}@bucket/trades",
        f"s3://bucket/trades?secret_access_key={SECRET}",
    ],
)
def test_a_url_with_a_password_is_refused_before_anything_of_it_is_shown(url: str) -> None:
    with pytest.raises(InvalidInputError, match="may not carry credentials") as refused:
        places_at([url], {})
    assert SECRET not in str(refused.value)


def test_a_manifest_with_far_too_many_names_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    hostile(tmp_path / "store", many=2_000)
    with serving(tmp_path / "store") as page:
        for path in ("/", "/p/store", "/p/store/checkpoint/1", "/api/p/store/history"):
            assert len(page.text(path.format(p="store"))) < 1_500_000


def test_a_configuration_that_is_nested_very_deeply_is_shown_as_far_as_it_is_sensible(
    tmp_path: Path,
) -> None:
    nested: object = 1
    for _ in range(900):
        nested = {"x": nested}
    with open_store(tmp_path / "store") as store:
        store.save(CheckpointManifest.new(1, epoch=1, structure={"sources": nested}))
        store.save(CheckpointManifest.new(2, epoch=2, upgrade={"from": nested}, gaps=[nested]))
    with serving(tmp_path / "store") as page:
        for path in (*PAGES, *DOCUMENTS):
            assert page(path.format(p="store")).status == 200, path


def test_no_template_has_a_script_a_style_or_an_address_of_its_own() -> None:
    import seamark.ui

    folder = Path(seamark.ui.__file__).parent
    for file in [*(folder / "templates").iterdir(), *(folder / "static").iterdir()]:
        text = file.read_text()
        assert re.search(r"https?://(?!www\.w3\.org/2000/svg)", text) is None, file.name
        if file.suffix == ".html":
            assert re.search(r"<script(?! type=\"module\" src=\"/static/)", text) is None
            assert re.search(r"\sstyle=|<style|\son[a-z]+=", text) is None
            assert "|safe" not in text
        if file.suffix == ".js":
            assert (
                re.search(r"innerHTML\s*=[^=]|insertAdjacentHTML|document\.write|\beval\(", text)
                is None
            )
