"""Write the line that installs an extra of this package; every message that names one takes it from here."""

from __future__ import annotations

# As in setup.py. Names have no hyphen and no underscore: an old pip changes those on one side of the comparison only.
DISTRIBUTION = "ding-like"


def pip_line(extra: str, *, options: str = "") -> str:
    """Return what to type to install an extra; `options` are of pip, such as --force-reinstall."""
    return f'pip install {options + " " if options else ""}"{DISTRIBUTION}[{extra}]"'
