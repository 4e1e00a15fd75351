"""The reader of the API page finds classes, members, marks and functions."""

from __future__ import annotations

import json

from tests.api.make_table import make_table, write_table

PAGE = """ding.worker¶
ding.worker
¶
IThing
¶
Bases: ABC
Overview
Interfaces: init, run
size
property
writable
¶
Overview
Count things(many of them).
run(target, *args, mode='fast', **kwargs)
abstractmethod
¶
Overview
Run.
Thing
¶
Bases: IThing, object
Overview
Interfaces: init, run, close
close()
¶
create_thing(cfg, options={}, limit=-1)
¶
Overview
Create.
"""


def test_page_becomes_classes_and_functions() -> None:
    table = make_table(PAGE)

    assert table == {
        "classes": {
            "IThing": {
                "bases": ["ABC"],
                "members": {
                    "size": {"marks": ["property", "writable"]},
                    "run": {"params": ["target", "*args", "mode='fast'", "**kwargs"], "marks": ["abstractmethod"]},
                },
            },
            "Thing": {"bases": ["IThing", "object"], "members": {"close": {"params": []}}},
        },
        "functions": {"create_thing": ["cfg", "options={}", "limit=-1"]},
    }


def test_written_table_reads_back_with_one_line_per_list() -> None:
    table = make_table(PAGE)

    text = write_table(table)

    assert json.loads(text) == table
    assert '"params": [ "target", "*args", "mode=\'fast\'", "**kwargs" ]' in text
