"""What MkDocs is told beyond `mkdocs.yml`: pages that lie outside `docs/`, and links as the repository has them.

A link in a page is relative to the file in the repository, so that it works in an editor and on a forge. On the site
`docs/` is the root and `README.md` is the first page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_content", "on_page_markdown"]

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies beside `docs/`."""
    beside = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    examples = [path for path in sorted((ROOT / "examples").rglob("*")) if path.is_file()]
    for path in (*beside, *(path for path in examples if "node_modules" not in path.parts)):
        source = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _on_site(source), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead to pages of the site; what stands in a block of code is left alone."""
    here = page.file.src_uri
    parts, end = [], 0
    for block in _FENCE.finditer(markdown):
        parts += [_relinked(markdown[end : block.start()], here), block[0]]
        end = block.end()
    return "".join([*parts, _relinked(markdown[end:], here)])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Unescape the bars within cells: forges want them escaped in code, too, where Markdown keeps the backslash."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def _relinked(markdown: str, here: str) -> str:
    folder = PurePosixPath(_in_repository(here)).parent

    def replaced(link: re.Match[str]) -> str:
        target = _on_site(os.path.normpath(folder / link[2]))
        return link[1] + os.path.relpath(target, PurePosixPath(here).parent)

    return _LINK.sub(replaced, markdown)


def _on_site(source: str) -> str:
    """Return the place on the site of a file of the repository."""
    return "index.md" if source == "README.md" else source.removeprefix("docs/")


def _in_repository(place: str) -> str:
    """Return the file of the repository that has a place on the site."""
    if place == "index.md":
        return "README.md"
    return place if (ROOT / place).exists() else f"docs/{place}"
