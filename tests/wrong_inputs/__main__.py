"""Write docs/wrong_inputs.md again: `python -m tests.wrong_inputs`."""

import sys
import tempfile
from pathlib import Path

from tests.wrong_inputs.page import PAGE, page

if set(sys.argv[1:]) - {"--write"}:
    sys.exit(__doc__)
with tempfile.TemporaryDirectory() as folder:
    PAGE.write_text(page(Path(folder)))
