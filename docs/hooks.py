"""Put pages that lie outside docs/ on the site, and turn links between pages to where they stand there.

README, CHANGELOG, CONTRIBUTING and the page of benchmarks stay where people look for them in a repository; the site has
them under the names below, made when it is built, so that no text stands twice. The tables of the page Settings are
made then too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from settings_tables import tables  # beside this file

ROOT = Path(__file__).parents[1]
# In the repository -> on the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)(?=[)#])")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links, written for the repository, to the site's pages; fill in the tables of settings."""
    if page.file.src_uri == "settings.md":
        markdown = markdown.replace("<!-- tables of settings -->", tables())
    source = source_of(page.file.src_uri)
    return LINK.sub(lambda link: site_link(link[1], source, page.file.src_uri), markdown)


def source_of(page: str) -> str:
    """Return where the text of a page stands in the repository."""
    return next((source for source, made in PAGES.items() if made == page), f"docs/{page}")


def site_link(target: str, source: str, page: str) -> str:
    """Return a link of file `source` as it must be in `page`.

    A link to what is not on the site stays as it is, so that a strict build fails.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path in PAGES:
        made = PAGES[path]
    elif path.startswith("docs/"):
        made = path.removeprefix("docs/")
    else:
        return target
    return posixpath.relpath(made, posixpath.dirname(page) or ".")
