"""List slips in how weights are laid out, rounded, sent by changes and put back."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_ENCODE = "ding_like/comm/weights/encode.py"
_DELTA = "ding_like/comm/weights/delta.py"
_FILES = "ding_like/comm/weights/files.py"
_RANKS = "ding_like/comm/weights/torch_dist.py"
_ESCAPED = (
    "tests/comm/weights/test_encode.py::test_a_parameter_whose_name_has_a_slash_or_a_tilde_is_rounded_as_others_are"
)
_ROUNDED = "tests/comm/weights/test_encode.py::test_bfloat16_rounds_float32_tensors_and_nothing_else"
_CHANGED_FILE = (
    "tests/comm/weights/test_encode_properties.py::test_a_file_that_is_not_as_it_would_be_written_is_refused"
)
_STREAMED = "tests/comm/rest/test_shared_files.py::test_where_a_delta_does_not_help_the_whole_is_sent"

MUTATIONS = (
    # Counters in float64 are rounded too.
    Mutation(_ENCODE, "own is torch.float32 and", "own in (torch.float32, torch.float64) and", (_ROUNDED,)),
    # Numbers and arrays, the statistics of wrappers, are rounded too.
    Mutation(_ENCODE, ' and "~" not in _last_key(name) else None', " else None", (_ROUNDED,)),
    # A name that ends in an escaped "~" or "/" is taken for a number's.
    Mutation(_ENCODE, '[2].replace("~0", "").replace("~1", "")', "[2]", (_ESCAPED,)),
    # The order of the state in place of that of names: two ends lay the same state out in two ways.
    Mutation(
        _ENCODE,
        "key=lambda each: (_ORDER[each.wire_dtype], each.name))",
        "key=lambda each: _ORDER[each.wire_dtype])",
        ("tests/comm/weights/test_encode.py::test_layouts_of_equal_states_are_equal_and_survive_json",),
    ),
    # Sizes of a foreign layout without a limit.
    Mutation(
        _ENCODE,
        "if nbytes > MAX_NBYTES:",
        "if False:",
        ("tests/comm/weights/test_encode_properties.py::test_a_layout_that_is_nonsense_is_refused",),
    ),
    # What was made of other bytes is taken.
    Mutation(
        _DELTA,
        "if zlib.crc32(new.data) != crc:",
        "if False:",
        (
            "tests/comm/weights/test_delta.py::test_a_delta_to_other_bytes_is_refused",
            "tests/comm/weights/test_torch_dist.py::test_a_reader_that_cannot_apply_a_delta_gets_all_bytes",
        ),
    ),
    # The last block, which is shorter, is never sent.
    Mutation(
        _DELTA,
        "if differs.size > both and np.array_equal(old[both * BLOCK :], new[both * BLOCK :]):",
        "if differs.size > both:",
        ("tests/comm/weights/test_delta.py::test_a_delta_restores_the_new_bytes_whatever_the_lengths",),
    ),
    # Room for what a delta only claims to bring.
    Mutation(
        _DELTA,
        "if after - old.size > num_changed * BLOCK:",
        "if False:",
        ("tests/comm/weights/test_delta.py::test_what_is_no_delta_is_refused",),
    ),
    # A head that points elsewhere.
    Mutation(_FILES, "if data[:start] != _file_head(found_id, found, layout):", "if False:", (_CHANGED_FILE,)),
    # Another version under this one's name.
    Mutation(
        _FILES,
        "if (found_id, found) != (policy_id, version):",
        "if False:",
        ("tests/comm/weights/test_encode_properties.py::test_a_file_of_another_version_is_refused",),
    ),
    # A delta's result is not compared with what was announced.
    Mutation(
        "ding_like/comm/rest/shared_files.py",
        '        except (CommError, OSError) as error:\n            logger.warning("weights',
        '        except KeyError as error:\n            logger.warning("weights',
        (_STREAMED,),
    ),
    # Readers that missed a version are sent the changes since it.
    Mutation(
        _RANKS,
        "has_before = before is not None and self._held.get((name, policy_id)) == before",
        "has_before = before is not None",
        ("tests/comm/weights/test_torch_dist.py::test_a_reader_that_missed_a_version_gets_all_bytes",),
    ),
    # A target is half filled before the fault is seen.
    Mutation(
        "ding_like/comm/weights/extract.py",
        "    check_alike(kinds_of(state_of(target)), kinds_of(state))\n",
        "",
        ("tests/comm/weights/test_extract.py::test_what_does_not_fit_changes_nothing_and_is_named",),
    ),
)
