"""Check a built documentation site: every link leads somewhere, and nothing is fetched elsewhere.

    python -m tools.check_site build/site

MkDocs checks the links between pages while it builds them. This reads what it has built: also
links of the theme, of the reference and in pictures, and addresses in style sheets. Links that a
reader may follow out of the site are fine; what a browser would load from elsewhere is not.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOADED: Final = {"img": "src", "script": "src", "source": "src", "iframe": "src", "video": "src"}
"""What a browser loads by itself, and the attribute that says from where."""
LINK_KINDS_NOT_LOADED: Final = {"canonical", "prev", "next", "alternate"}
_URL_IN_CSS: Final = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class PageLinks(HTMLParser):
    """What one page links to, what it loads, and which anchors it has."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each element."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and not LINK_KINDS_NOT_LOADED & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        elif tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


def is_elsewhere(url: str) -> bool:
    """Whether an address is not one of the site itself."""
    parts = urlsplit(url)
    return bool(parts.scheme and parts.scheme != "data") or bool(parts.netloc)


def read_pages(site: Path) -> dict[Path, PageLinks]:
    """All pages of a site, by their paths."""
    pages = {}
    for path in sorted(site.glob("**/*.html")):
        pages[path.resolve()] = page = PageLinks()
        page.feed(path.read_text(encoding="utf-8"))
    return pages


def problems_of(path: Path, page: PageLinks, pages: dict[Path, PageLinks], home: Path) -> list[str]:
    """What is wrong with the links of one page. ``home`` is the folder of the site."""
    found = [f"loads {url} from elsewhere" for url in page.loaded if is_elsewhere(url)]
    for url in [*page.links, *page.loaded]:
        parts = urlsplit(url)
        if is_elsewhere(url) or parts.scheme:
            continue
        # the page of what is not found may be shown at any address: it has absolute links
        base = home if parts.path.startswith("/") else path.parent
        there = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
        there = there / "index.html" if there.is_dir() else there
        if not there.is_file():
            found.append(f"links to {url}, which is not there")
        elif parts.fragment and there in pages:
            anchors = pages[there].anchors
            # Material's own: the top of a page, and what its scripts make
            if unquote(parts.fragment) not in anchors and not parts.fragment.startswith("__"):
                found.append(f"links to {url}, which has no such anchor")
    return found


def problems_of_style(path: Path) -> list[str]:
    """What a style sheet loads from elsewhere."""
    urls = [one or other for one, other in _URL_IN_CSS.findall(path.read_text(encoding="utf-8"))]
    return [f"loads {url} from elsewhere" for url in urls if is_elsewhere(url)]


def check(site: Path) -> list[str]:
    """All problems of a site, each with the file that has it."""
    pages = read_pages(site)
    if not pages:
        return [f"{site} has no page"]
    home = site.resolve()
    found = {
        **{path: problems_of(path, page, pages, home) for path, page in pages.items()},
        **{path.resolve(): problems_of_style(path) for path in site.glob("**/*.css")},
    }
    told = [(path, what) for path, problems in found.items() for what in problems]
    return [f"{path.relative_to(home)} {what}" for path, what in told]


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]))
    right = "every link leads somewhere, and nothing is loaded from elsewhere"
    print("\n".join(sorted(set(problems))) or right)
    sys.exit(1 if problems else 0)
