"""Name the cases that are not answered as they should be yet; a case leaves this list with what mends it."""

from __future__ import annotations

OPEN = frozenset(
    (
        "a policy of one's own that is not imported",
        "an env of one's own that is not imported",
        "a coordinator's address without http://",
        "a module of one's own with an error in it",
        "a module of one's own that is no Python",
        "an argument that a class of one's own does not take",
        "a constructor that raises",
        "reset that raises",
        "reset without info",
        "step that raises",
        "no action space",
        "no observation space",
        "a number in place of a space",
        "a reward that is no number",
        "a model that is a class",
        "a model without the methods of its policy",
        "an env in place of env_setting",
        "a policy of one's own that is not registered",
        "a policy of one's own with an error in it",
        "a policy of one's own without apply",
    )
)
FOLDERS_STAY = False  # until a failed start takes its folder away again
