"""List slips in how weights go through shared memory, with which a reader would see half of a version, or wait."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_BLOCK = "ding_like/comm/weights/shared_block.py"
_MEMORY = "ding_like/comm/weights/shared_memory.py"
_FOLDER = "ding_like/comm/weights/shared_folder.py"
_IN_A_WRITE = "tests/comm/weights/test_shared_block.py::test_a_reader_in_the_middle_of_a_write_gets_the_version_before"
_IN_A_COPY = "tests/comm/weights/test_shared_block.py::test_a_copy_that_is_overtaken_is_made_again"
_AT_ITS_END = (
    "tests/comm/weights/test_shared_block.py::test_a_copy_whose_buffer_is_being_written_when_it_ends_is_made_again"
)
_FAULTS = "tests/comm/weights/test_shared_memory_faults.py"

MUTATIONS = (
    # The counter first, and the body after it.
    Mutation(
        _BLOCK,
        "        head[_SEQUENCE] = 2 * number - 1\n        fill(body)",
        "        head[_SEQUENCE] = 2 * number\n        self._words[_NUMBERS] = number\n        fill(body)",
        (_IN_A_WRITE,),
    ),
    # No second look at the sequence.
    Mutation(
        _BLOCK,
        "        if int(head[_SEQUENCE]) != 2 * number:\n            return _Trouble.OVERTAKEN",
        "        if False:\n            return _Trouble.OVERTAKEN",
        (_IN_A_COPY,),
    ),
    # A buffer that is being written is not marked.
    Mutation(_BLOCK, "head[_SEQUENCE] = 2 * number - 1", "pass", (_AT_ITS_END,)),
    # One buffer only.
    Mutation(
        _BLOCK,
        "start = _LINE + number % self._num_buffers * self._stride\n        head, names",
        "start = _LINE + number % 1 * self._stride\n        head, names",
        (_IN_A_WRITE,),
    ),
    # A checksum that nobody compares.
    Mutation(
        _BLOCK,
        "if self._is_checked and _crc32(number, version, said, copied) != checksum:",
        "if False and _crc32(number, version, said, copied) != checksum:",
        ("tests/comm/weights/test_shared_block.py::test_bytes_that_are_not_those_of_their_checksum_are_refused",),
    ),
    # Memory that is still held is used again.
    Mutation(
        _BLOCK,
        "    weakref.finalize(copied, _keep, memory, spare).atexit = False\n",
        "    spare.append(memory)\n",
        ("tests/comm/weights/test_shared_memory.py::test_versions_that_somebody_holds_stay_as_they_are",),
    ),
    # Everybody takes what is for some.
    Mutation(
        _BLOCK,
        'is_for_us = not said or reader.encode() in said.split(b"\\n")',
        "is_for_us = True",
        ("tests/comm/weights/test_shared_memory.py::test_weights_for_some_readers_are_left_alone_by_the_others",),
    ),
    # No room is set aside: a full /dev/shm would be a SIGBUS in the middle of a write.
    Mutation(
        _BLOCK,
        "        os.posix_fallocate(descriptor, 0, size)",
        "        pass",
        ("tests/comm/weights/test_shared_memory.py::test_a_full_dev_shm_is_an_error_and_readers_keep_what_they_have",),
    ),
    # An older version of a new publisher in place of what the reader has.
    Mutation(
        _MEMORY,
        "if before is None or taken.version > before.version:",
        "if before is None or taken.version != before.version:",
        ("tests/comm/weights/test_shared_memory.py::test_a_reader_never_goes_back_to_an_older_version",),
    ),
    # A block that is replaced while a reader attaches is not looked for again.
    Mutation(
        _MEMORY,
        "            if not self._gone:\n                return\n",
        "            return\n",
        (
            "tests/comm/weights/test_shared_memory.py::test_a_block_that_is_replaced_while_a_reader_attaches_is_followed",
        ),
    ),
    # Nobody is woken where nobody is waited for.
    Mutation(
        _MEMORY,
        "            self._num_news += 1\n            self._changed.notify_all()\n        if answer",
        "        if answer",
        (f"{_FAULTS}::test_a_reader_that_waits_is_woken_by_whoever_takes_over",),
    ),
    # A killed reader is waited for.
    Mutation(
        "ding_like/comm/weights/shared_talk.py",
        "return self.is_lost or max(self._taken, self._failed) >= number",
        "return max(self._taken, self._failed) >= number",
        (f"{_FAULTS}::test_a_reader_that_is_killed_while_it_is_awaited_ends_the_wait",),
    ),
    # Forked children keep the connections of processes that are gone.
    Mutation(
        _MEMORY,
        "os.register_at_fork(after_in_child=_forget_all)",
        "_forget_all",
        (
            f"{_FAULTS}::test_a_forked_child_does_not_keep_a_killed_reader_alive",
            f"{_FAULTS}::test_a_forked_child_does_not_keep_a_killed_publishers_name",
        ),
    ),
    # What a killed publisher left stays.
    Mutation(
        _FOLDER,
        "    unlink_blocks(_prefix(folder))\n",
        "",
        (f"{_FAULTS}::test_what_a_killed_publisher_leaves_is_deleted_by_one_of_another_name",),
    ),
)
