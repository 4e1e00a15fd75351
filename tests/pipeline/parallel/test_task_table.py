"""When a lease is over."""

from ding_like.pipeline.parallel.core.tasks import QUEUED, TaskEntry, TaskTable


def leased_table() -> tuple[TaskTable, TaskEntry]:
    """Return a table with one task, leased for 10 s at 100 s."""
    table = TaskTable(10.0)
    table.add(TaskEntry("collect-1", "collect", "buffer", "policy", {}))
    task = table.claim("collector-a", ("collect",), 100.0)
    assert task is not None
    return table, task


def test_a_lease_is_over_when_its_time_is_and_not_before() -> None:
    table, task = leased_table()

    assert table.expired(109.9) == []
    assert table.expired(110.0) == [task]


def test_a_renewed_lease_runs_anew() -> None:
    table, task = leased_table()

    table.renew("collector-a", 105.0)

    assert table.expired(114.9) == [] and table.expired(115.0) == [task]


def test_a_task_in_the_queue_has_no_lease_to_be_over() -> None:
    table, task = leased_table()

    table.release(task)

    assert task.status == QUEUED and table.expired(1e9) == []
