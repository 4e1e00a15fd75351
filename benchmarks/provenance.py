"""Say which code a figure was measured with: the commit, and whether the tree differed from it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# Recordings, which pages of docs show; and what anybody measures, which git ignores.
RESULTS = Path(__file__).parent / "results"
OWN = Path(__file__).parent / "own"
# What a recording itself changes: the next one of the same session is not refused for it.
_RECORDINGS = ("benchmarks/results", "docs/learning", "docs/results", "docs/reports", "docs/algorithms")
_HASH_LENGTH = 12


class DirtyTreeError(Exception):
    """A recording was asked for while the tree differs from its commit."""


class Provenance(NamedTuple):
    """Commit (None: not a checkout) and the files that differed from it."""

    commit: str | None
    changed: tuple[str, ...]

    def to_plain(self) -> dict[str, object]:
        """Return what a recording holds: `commit`, and `changed_files` where the tree was dirty."""
        return {"commit": self.commit, **({"changed_files": list(self.changed)} if self.changed else {})}


def provenance(*, allow_dirty: bool = False, root: Path = ROOT) -> Provenance:
    """Return the commit and what differs from it; call it before measuring, as results change the tree too.

    Raises DirtyTreeError if files differ, new ones included, unless `allow_dirty` is given. Earlier recordings count
    for nothing here: no figure depends on them.
    """
    commit = git("rev-parse", f"--short={_HASH_LENGTH}", "HEAD", root=root)
    if commit is None:
        return Provenance(None, ())
    but = [f":(exclude){folder}" for folder in _RECORDINGS]
    status = git("status", "--porcelain", "--untracked-files=all", "--", ".", *but, root=root) or ""
    changed = tuple(line[3:] for line in status.splitlines())
    if changed and not allow_dirty:
        seen = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        raise DirtyTreeError(
            f"results are not recorded from a tree that differs from commit {commit}: {seen}. Commit or stash first, "
            "leave --record out, or give --allow-dirty, which writes the fact into the file."
        )
    return Provenance(commit, changed)


def git(*args: str, root: Path = ROOT) -> str | None:
    """Return what git says, None where there is no git, no checkout, or it fails."""
    try:
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.rstrip("\n")
