"""Several seeds, comparisons and reports."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import SERIAL, Case

DRY = "ding -m ray -c my_config.py --dry-run"

SEEDS = (
    Case("a range of seeds backwards", f"{SERIAL} -s 4..0", ("-s 4..0 is an empty range", "Did you mean 0..4?"), f"{SERIAL} -s 0..0"),
    Case("a range without its end", f"{SERIAL} -s 0..", ("-s 0.. names no seeds", "0..4"), f"{SERIAL} -s 0..0"),
    Case("a seed twice", f"{SERIAL} -s 0..1 -s 1", ("seed 1 is given 2 times", "once"), f"{SERIAL} -s 0"),
    Case("too many seeds", f"{SERIAL} -s 0..99999", ("100,000 seeds", "at most 10,000"), f"{SERIAL} -s 0"),
    Case("jobs for one seed", f"{SERIAL} -s 0 -j 2", ("-j 2 is of several seeds", "-s 0..4 -j 2"), f"{SERIAL} -s 0"),
    Case("no jobs", f"{SERIAL} -s 0..1 -j 0", ("--jobs is 0", "1 or more"), f"{SERIAL} -s 0"),
    Case("several seeds in a dry run", f"{DRY} -s 0..2", ("3 seeds are given", "--dry-run is of one", "give one -s"), f"{DRY} -s 0"),
    Case("jobs of a mode with processes of its own", "ding -m ray -c my_config.py -s 0..1 -j 2", ("-j 2 is of modes serial", "Leave -j out"), DRY),
    Case("jobs for a run that is resumed", "ding --resume my_exp -j 2", ("-j is of experiments of several seeds",), "ding --resume my_exp", needs_run=True),
)  # fmt: skip

AFTER = (
    Case("compare one", "ding compare my_exp", ("only 'my_exp' to compare", "ding compare A B"), "ding plot my_exp", needs_run=True),
    Case("compare with a folder that is not there", "ding compare my_exp my_ex", ("no experiment folder 'my_ex'", "my_exp"), "ding plot my_exp", needs_run=True),
    Case("compare into a format that is not", "ding compare my_exp other --out c.pdf", ("as .png, not as 'c.pdf'", "--out c.png"), "ding plot my_exp", needs_run=True),
    Case("report of a folder that is not there", "ding report my_ex", ("no experiment folder 'my_ex'", "my_exp"), "ding report my_exp", needs_run=True),
    Case("report of a folder without a run", "ding report empty", ("'empty' holds no metrics.jsonl",), "ding report my_exp", needs_run=True, files={"empty/notes.txt": ""}),
    Case("report as another kind of file", "ding report my_exp -o r.pdf", (".html file, not 'r.pdf'", "--out r.html"), "ding report my_exp -o r.html", needs_run=True),
    Case("report of two", "ding report my_exp my_exp", ("unexpected extra argument",), "ding report my_exp", needs_run=True, status=2),
)  # fmt: skip
