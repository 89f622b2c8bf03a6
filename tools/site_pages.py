"""Put all pages of the documentation site together in one folder, as plain Markdown.

    python -m tools.site_pages build/docs

The folder has the pages of ``docs/`` as they are, pages that stand elsewhere in the repository
(the architecture, the changelog, the benchmarks), a page for each program in ``examples/``, and
each notebook as a page with its outputs. Links are written so that they work on a code host; those
that leave ``docs/`` are led to the page that their target has become. ``mkdocs.yml`` names that
folder, so that any program that can read the file can build the site.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FROM_ELSEWHERE: Final = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "benchmarks.md",
    "dashboards/alerts.yml": "dashboards/alerts.yml",
    "dashboards/seamark.json": "dashboards/seamark.json",
    "examples/README.md": "examples/README.md",
    "src/seamark/ui/static/seamark.svg": "images/seamark.svg",
}
"""Where a file of the repository is on the site."""
DOWNLOAD: Final = "?download"
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_FENCED: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.S | re.M)


def places() -> dict[str, str]:
    """Where each file that the site consists of is in the repository, and where on the site."""
    documents = [path for path in sorted(ROOT.glob("docs/**/*")) if path.is_file()]
    inside = [path.relative_to(ROOT / "docs").as_posix() for path in documents]
    examples = [path.stem for path in sorted(ROOT.glob("examples/*.py"))]
    return {
        # what leads to the front page of the repository leads to that of the site
        "README.md": "README.md",
        **FROM_ELSEWHERE,
        **{f"examples/{name}.py": f"examples/{name}.md" for name in examples},
        **{f"docs/{path}": re.sub(r"\.ipynb$", ".md", path) for path in inside},
    }


def page_of_program(name: str, code: str) -> str:
    """A program as a page: its description, and all of its text."""
    described = ast.get_docstring(ast.parse(code)) or ""
    prose = re.sub(r"::\n\n(?= {4})", ":\n\n", described)
    return f"# {name}\n\n{prose}\n\n```python\n{code}```\n"


def page_of_notebook(path: Path) -> str:
    """A notebook as a page: its cells, and the outputs that it was stored with."""
    from nbconvert import MarkdownExporter

    exporter = MarkdownExporter()  # type: ignore[no-untyped-call]
    text, _ = exporter.from_filename(str(path))
    return f"{text}\n\nTo run it yourself: [{path.name}]({path.name}{DOWNLOAD})\n"


def relinked(markdown: str, page: str, pages: dict[str, str]) -> str:
    """A page with its links led to where their targets are on the site.

    ``page`` is where it is in the repository. Raises ValueError when a link leads to a file that
    is not on the site.
    """
    folder, site = os.path.dirname(page), os.path.dirname(pages[page])

    def led(match: re.Match[str]) -> str:
        path, mark, heading = match[1].partition("#")
        if not path or ":" in path:
            return match[0]
        if path.endswith(DOWNLOAD):
            return f"]({path.removesuffix(DOWNLOAD)})"
        target = os.path.normpath(os.path.join(folder, path))
        if target not in pages:
            raise ValueError(f"{page} links to {path}, which is not on the site")
        return f"]({os.path.relpath(pages[target], site or '.')}{mark}{heading})"

    parts, done = [], 0
    for fence in _FENCED.finditer(markdown):
        parts += [_LINK.sub(led, markdown[done : fence.start()]), fence[0]]
        done = fence.end()
    return "".join([*parts, _LINK.sub(led, markdown[done:])])


def contents() -> Iterator[tuple[str, bytes]]:
    """Every file of the site: where it is there, and what is in it."""
    pages = places()
    for path, site in pages.items():
        here = ROOT / path
        if path == "README.md":
            continue
        if path.endswith(".md"):
            yield site, relinked(here.read_text(encoding="utf-8"), path, pages).encode()
        elif path.endswith(".py"):
            yield site, page_of_program(here.name, here.read_text(encoding="utf-8")).encode()
        elif path.endswith(".ipynb"):
            yield site, relinked(page_of_notebook(here), path, pages).encode()
            yield path.removeprefix("docs/"), here.read_bytes()
        else:
            yield site, here.read_bytes()


def assemble(target: Path) -> None:
    """Make the folder what it should be. Files that are right already are not touched."""
    wanted = {target / site: data for site, data in contents()}
    for path in sorted(target.glob("**/*")):
        if path.is_file() and path not in wanted:
            path.unlink()
    for path, data in wanted.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put the pages of the documentation together.")
    parser.add_argument("target", type=Path)
    assemble(parser.parse_args().target)
