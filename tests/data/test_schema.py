import numpy as np
import pytest

from ding_like.data.batch import Schema
from ding_like.errors import SchemaError

COLUMNS = {"obs": np.zeros((3, 4), np.float32), "action": np.zeros(3, np.int64)}


def test_schema_survives_json_and_keeps_its_hash():
    schema = Schema.of(COLUMNS)

    again = Schema.from_json(schema.to_json())

    assert dict(again) == dict(schema)
    assert again.hash() == schema.hash()
    assert schema.row_bytes == 4 * 4 + 8


def test_allocate_makes_columns_of_the_schema():
    made = Schema.of(COLUMNS).allocate(5)

    assert made["obs"].shape == (5, 4) and made["obs"].dtype == np.float32
    assert made["action"].shape == (5,)


def test_check_names_every_fault_at_once():
    with pytest.raises(SchemaError) as caught:
        Schema.of(COLUMNS).check({"obs": np.zeros((2, 5), np.float32), "extra": np.zeros(2)}, where="the buffer")

    message = str(caught.value)
    assert "'action' is missing" in message
    assert "'obs' has rows float32[5], the buffer holds float32[4]" in message
    assert "'extra' is not stored" in message
