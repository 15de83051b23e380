"""Hooks of the site beyond MkDocs: pages for linked files of the project and for notebooks;
drawings as a part of their page, so that they follow its colours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
DRAWING = re.compile(
    r'<p>\s*<img alt="([^"]*)" src="(?:\.\./)*(pictures/[\w-]+\.svg)"\s*/?>\s*</p>'
)
LANGUAGES = {".yaml": "yaml", ".py": "python", ".sh": "bash", ".proto": "protobuf", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and each file or folder outside docs/ that is linked to."""
    waiting = [DOCS / file.src_uri for file in files if file.src_uri.endswith(".md")]
    seen = set(waiting)
    for path in (DOCS / "notebooks").glob("*.ipynb"):
        files.append(File.generated(config, _uri(path), content=_notebook(path)))
    while waiting:
        for path in _linked(waiting.pop()):
            if path in seen or not path.exists() or not path.is_relative_to(ROOT):
                continue
            seen.add(path)
            if path.is_relative_to(DOCS):
                continue
            waiting.append(path)
            files.append(File.generated(config, _uri(path), content=_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ into links to their pages."""
    if page.file.generated_by is not None:
        return markdown  # its links were turned when it was made
    return _turned(markdown, DOCS / page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put each drawing of docs/pictures/ into the page itself."""

    def drawn(found: re.Match[str]) -> str:
        svg = (DOCS / found[2]).read_text(encoding="utf-8")
        return f'<figure class="drawing">{svg}</figure>'

    return DRAWING.sub(drawn, html)


def _linked(path: Path) -> Iterator[Path]:
    """Yield the files that a document links to, or all files of a folder."""
    if path.is_dir():
        yield from sorted(p for p in path.iterdir() if p.name != "__pycache__")
    elif path.suffix == ".md":
        for found in LINK.finditer(FENCED.sub("", path.read_text(encoding="utf-8"))):
            yield Path(os.path.normpath(path.parent / found[2]))


def _turned(markdown: str, path: Path) -> str:
    """Return the text of the document at `path` with links as the site has them."""

    def turned(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / found[2]))
        stays = target.is_relative_to(DOCS) and path.is_relative_to(DOCS)
        if not target.exists() or (stays and target.suffix != ".ipynb"):
            return found[0]
        here = Path(_uri(path)).parent
        return f"{found[1]}{os.path.relpath(_uri(target), here)}{found[3] or ''}{found[4]}"

    parts = FENCED.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(turned, p) for p in parts)


def _uri(path: Path) -> str:
    """Return the place of `path` in the site."""
    if path == DOCS:
        return "index.md"
    if path.is_relative_to(DOCS):
        page = path.with_suffix(".md") if path.suffix == ".ipynb" else path
        return page.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix().replace("/", "-")
    return f"files/{re.sub(r'[^A-Za-z0-9_-]', '-', name)}.md"


def _notebook(path: Path) -> str:
    """Return a notebook as a page: texts, code, and the outputs of its last run."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(_turned(cell.source, path))
        elif cell.cell_type == "code":
            parts.append(f"````python\n{cell.source.rstrip()}\n````")
            parts += [_output(one) for one in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _output(output: nbformat.NotebookNode) -> str:
    """Return the output of a cell, in the richest form that needs no script."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![output](data:image/png;base64,{''.join(data['image/png'].split())})"
    for form in ("image/svg+xml", "text/html"):
        if form in data:
            return f'<div class="output">{data[form]}</div>'
    text = output.get("text", data.get("text/plain", ""))
    return f"````text\n{text.rstrip()}\n````" if text.strip() else ""


def _page(path: Path) -> str:
    """Return a page for a file or a folder outside docs/."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        links = (f"- [{p.name}]({os.path.relpath(_uri(p), 'files')})" for p in _linked(path))
        return "\n".join([f"# {name}/", "", *links, ""])
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return _turned(text, path)
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{text.rstrip()}\n````\n"
