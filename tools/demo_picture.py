"""Run the demo and draw the end of what it prints, as the picture in the README.

    python -m tools.demo_picture docs/images/demo.svg

The picture is a terminal window with a background of its own, so that it reads well on light and
dark pages. It loads nothing from elsewhere, no fonts either.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from seamark.cli import output
from seamark.cli.app import run

COLUMNS = 80
FIRST = "    6 "  # two epochs before the kill are enough
HEADLINE = "epoch "
LAST = "Take something away"

THEME = TerminalTheme(
    background=(30, 34, 42),
    foreground=(215, 218, 224),
    normal=[
        (30, 34, 42),
        (240, 113, 120),
        (135, 200, 120),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (215, 218, 224),
    ],
)
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Made by 'make picture'. -->
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def demo_output() -> str:
    """Run the demo in a temporary folder and return what it printed, with its colours."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), highlight=False, soft_wrap=True
    )
    output.stdout = lambda: console
    sys.argv[0] = "seamark"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        code = run(["demo"])
    if code:
        raise SystemExit(f"the demo ended with exit code {code}")
    return console.export_text(styles=True)


def ending(lines: Sequence[Text]) -> list[Text]:
    """Choose what is shown: the headline, the epochs around the kill, and all that follows."""
    starts = [line.plain for line in lines]
    first = next((at for at, text in enumerate(starts) if text.startswith(FIRST)), 0)
    last = next((at for at, text in enumerate(starts) if text.startswith(LAST)), len(lines))
    headline = [line for line in lines[:first] if line.plain.startswith(HEADLINE)][:1]
    return [*headline, *([Text("    …")] if headline else []), *lines[first:last]]


def picture(ansi: str) -> str:
    """Draw the end of an output with colours as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False)
    for line in ending(list(Text.from_ansi(ansi).split("\n"))):
        line.rstrip()
        console.print(line, soft_wrap=True)
    drawn = console.export_svg(
        title="make demo", theme=THEME, code_format=SVG, unique_id="seamark-demo"
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def main() -> int:
    """Draw the picture."""
    target = Path(sys.argv[1]).absolute()
    os.environ["NO_COLOR"] = ""  # an empty one is none
    drawn = picture(demo_output())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(drawn)
    print(f"{target.name} is drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
