"""The pages of the site are those of the repository, and their links lead to each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.check_site import check
from tools.site_docstrings import as_markdown
from tools.site_pages import ROOT, assemble, page_of_notebook, page_of_program, places, relinked

PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "docs/README.md": "README.md",
    "docs/store.md": "store.md",
    "docs/how-to/move.md": "how-to/move.md",
    "docs/tutorials/first.ipynb": "tutorials/first.md",
    "examples/shop.py": "examples/shop.md",
}


@pytest.mark.parametrize(
    ("page", "link", "led"),
    [
        ("docs/store.md", "../ARCHITECTURE.md#layers", "project/architecture.md#layers"),
        ("docs/how-to/move.md", "../../examples/shop.py", "../examples/shop.md"),
        ("docs/how-to/move.md", "../tutorials/first.ipynb", "../tutorials/first.md"),
        ("ARCHITECTURE.md", "docs/store.md#order", "../store.md#order"),
        ("docs/store.md", "#order", "#order"),
        ("docs/store.md", "https://example.org/a#b", "https://example.org/a#b"),
    ],
)
def test_a_link_of_the_repository_leads_to_the_page_that_its_target_has_become(
    page: str, link: str, led: str
) -> None:
    assert relinked(f"See [it]({link}).", page, PAGES) == f"See [it]({led})."


def test_what_is_code_is_left_as_it_is() -> None:
    text = "```python\nrows[0](../../etc/passwd)\n```\n[store](../store.md)\n"
    assert relinked(text, "docs/how-to/move.md", PAGES) == text


def test_a_link_to_a_file_that_is_not_on_the_site_stops_the_build() -> None:
    with pytest.raises(ValueError, match=r"docs/store.md links to ../Makefile"):
        relinked("[it](../Makefile)", "docs/store.md", PAGES)


def test_a_program_is_a_page_with_its_description_and_all_of_its_text() -> None:
    code = '"""Sell things.\n\nRun it::\n\n    python shop.py\n"""\n\nprint(1)\n'
    page = page_of_program("shop.py", code)
    assert page.startswith("# shop.py\n\nSell things.\n\nRun it:\n\n    python shop.py\n")
    assert code in page


def test_a_notebook_is_a_page_with_the_outputs_that_it_was_stored_with(tmp_path: Path) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": ["two\n"]}
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "id": "one",
        "metadata": {},
        "outputs": [output],
        "source": ["print('two')"],
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "first.ipynb").write_text(json.dumps(notebook))
    page = page_of_notebook(tmp_path / "first.ipynb")
    assert "print('two')" in page
    assert "    two\n" in page
    assert page.endswith("[first.ipynb](first.ipynb?download)\n")


def test_the_folder_is_what_the_repository_says_however_often_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("# A page that was removed\n")
    assemble(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("**/*") if path.is_file()}
    assert tmp_path / "gone.md" not in made
    assert {str(path.relative_to(tmp_path)) for path in made} >= set(places().values())
    assemble(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_the_home_page_is_that_of_the_documentation(tmp_path: Path) -> None:
    assemble(tmp_path)
    home = (tmp_path / "README.md").read_text()
    assert home.splitlines()[0] == (ROOT / "docs/README.md").read_text().splitlines()[0]
    assert "(project/architecture.md)" in home


def site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return folder


def test_a_whole_site_is_accepted(tmp_path: Path) -> None:
    one = '<a href="two.html#below">two</a><a href="https://example.org">away</a>'
    assert check(site(tmp_path, one=one, two='<h2 id="below">Below</h2>')) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('<a href="three.html">x</a>', "one.html links to three.html, which is not there"),
        ('<a href="one.html#no">x</a>', "one.html links to one.html#no, which has no such anchor"),
        ('<img src="no.svg">', "one.html links to no.svg, which is not there"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "one.html loads https://cdn.example/x.js from elsewhere",
        ),
        (
            '<link rel="stylesheet" href="//fonts.example/x.css">',
            "one.html loads //fonts.example/x.css from elsewhere",
        ),
    ],
)
def test_a_dead_link_and_anything_from_elsewhere_are_found(
    tmp_path: Path, body: str, told: str
) -> None:
    assert check(site(tmp_path, one=body)) == [told]


def test_a_style_sheet_that_fetches_a_font_is_found(tmp_path: Path) -> None:
    site(tmp_path, one="")
    (tmp_path / "x.css").write_text("@font-face{src:url(https://fonts.example/a.woff2)}")
    assert check(tmp_path) == ["x.css loads https://fonts.example/a.woff2 from elsewhere"]


def test_a_site_without_pages_is_no_site(tmp_path: Path) -> None:
    assert check(tmp_path) == [f"{tmp_path} has no page"]


def test_a_docstring_becomes_markdown() -> None:
    text = (
        "Save it, as :class:`seamark.Pipeline` does::\n\n    store.save(1)\n\n    store.save(2)\n"
        "\nNothing else.\n\n>>> 1 + 1\n2\n\nTests: ``tests/a.py``, ``tests/b.py``.\n"
    )
    assert as_markdown(text) == (
        "Save it, as `seamark.Pipeline` does:\n\n```python\nstore.save(1)\n\nstore.save(2)\n```\n"
        "\nNothing else.\n\n```pycon\n>>> 1 + 1\n2\n```"
    )
