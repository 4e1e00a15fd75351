"""Environments and the configs that learn them, one folder each."""

import sys

if sys.argv[:1] == ["-m"]:  # which stands there while `python -m dizoo.x` looks for x
    from ding_like.utils.log import show_errors_shortly

    show_errors_shortly()
