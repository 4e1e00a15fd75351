"""Be the process of one tracker: python -m ding_like.utils.trackers.process, told by its parent through stdin.

The first line is what it is to track; then come {"cut": bytes, "ends": [...]} when the run's metrics are cut back, and
{"end": status}. The end of stdin without that means that the run's process was killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

_TRIES = 4  # of whatever fails, one after another, before the tracker is given up
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_REST = 100.0  # after so much CPU time it rests so many times as long: a run on one core pays a hundredth
_LONGEST_REST_S = 60.0
_LONGEST_REASON = 240  # characters of an error that are said
_FILES = ("curve.png", "agent.gif", "result.json", "total_config.py")


class _Mailbox:
    """Read messages from the parent, one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = b""
        self.is_closed = False

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message, None if none comes in time or none can come any more."""
        ends_s = time.monotonic() + timeout_s
        while b"\n" not in self._data:
            ready = select.select([self._descriptor], [], [], max(ends_s - time.monotonic(), 0.0))[0]
            if not ready:
                return None
            more = os.read(self._descriptor, 1 << 16)
            if not more:
                self.is_closed = True
                return None
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class TrackerProcess:
    """Send a run's metrics to one tracker as they come, until the run ends."""

    def __init__(self, told: Mapping[str, Any], mailbox: _Mailbox, say: Callable[[str, str], None]) -> None:
        from ding_like.utils.trackers.follower import Follower

        self._told = told
        self._name = str(told["tracker"])
        self._settings: Mapping[str, Any] = told["settings"]
        self._folder = Path(told["folder"])
        self._mailbox = mailbox
        self._say = say
        self._follower = Follower(self._folder / "metrics.jsonl", self._folder / "log/trackers" / f"{self._name}.json")
        self._status: str | None = None  # how the run ended, once that is known
        self._has_warned = False
        self._used_s = time.process_time()  # of CPU, until the last batch; imports are paid once

    def run(self) -> None:
        """Track to the run's end, or until what fails has failed too often."""
        from ding_like.utils.registries import TRACKER_REGISTRY
        from ding_like.utils.trackers.tracker import TrackedRun

        tracker = TRACKER_REGISTRY.get(self._settings.get("type", self._name))(self._settings)
        run = TrackedRun(str(self._told["name"]), self._folder, self._told["config"], self._follower.run_id)
        if not self._tried("begin", lambda: self._begin(tracker, run)):
            return
        self._say("info", f"{self._name}: {tracker.describe()}")
        while self._status is None:
            if not self._tried("send metrics", lambda: self._send(tracker)):
                return
            if self._status is None:
                self._listen(self._pause_s())
        if not self._tried("send metrics", lambda: self._send(tracker)):
            return
        self._tried("finish", lambda: self._finish(tracker))

    def _begin(self, tracker: Any, run: Any) -> None:
        self._follower.run_id = tracker.begin(run)
        self._follower.save()

    def _send(self, tracker: Any) -> None:
        while True:
            reports = self._follower.read()
            if self._listen(0.0):
                continue  # the file was cut back: what was read may be of neither state
            if reports:
                tracker.send(reports)
            before = self._follower.position
            self._follower.keep()
            if self._follower.position == before:
                return

    def _finish(self, tracker: Any) -> None:
        result: Mapping[str, Any] = {}
        path = self._folder / "result.json"
        if self._status == "finished" and path.is_file():
            result = json.loads(path.read_text(encoding="utf-8"))
        files = [self._folder / name for name in _FILES if self._status == "finished"]
        tracker.finish(result, [each for each in files if each.is_file()], status=self._status)

    def _listen(self, timeout_s: float) -> bool:
        """Take in a message that has come, or comes in time; return whether the file was cut back."""
        message = self._mailbox.next(timeout_s)
        if message is None:
            if self._mailbox.is_closed and self._status is None:
                self._status = "failed"  # the run's process was killed
            return False
        if "end" in message:
            self._status = str(message["end"])
            return False
        ends = [(int(end), cast("tuple[str, int, int]", tuple(key))) for end, key in message["ends"]]
        self._follower.cut(int(message["cut"]), ends)
        return True

    def _pause_s(self) -> float:
        """Return how long to wait before the next batch."""
        used_s = time.process_time() - self._used_s
        self._used_s = time.process_time()
        return max(float(self._settings["every_s"]), min(_REST * used_s, _LONGEST_REST_S))

    def _tried(self, what: str, act: Callable[[], None]) -> bool:
        """Do something, again if it fails; return False, and say so, where it is given up."""
        from ding_like.utils.trackers.tracker import TrackerRefusedError

        wait_s = _FIRST_WAIT_S
        for count in range(1, _TRIES + 1):
            try:
                act()
                return True
            except Exception as error:  # a tracker's library may raise anything; the run goes on
                text = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
                is_last = count == _TRIES or isinstance(error, TrackerRefusedError) or self._status is not None
                if not self._has_warned:
                    more = "it is off" if is_last else "it is tried again"
                    kept = f"the run goes on, and {self._folder}/metrics.jsonl has everything"
                    self._say("warning", f"{self._name} cannot {what} ({text}): {more}; {kept}")
                    self._has_warned = True
                elif is_last:
                    self._say("info", f"{self._name} still cannot {what}: it is off")
                if is_last:
                    return False
                self._listen(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return False


def main() -> None:
    """Track what the first line of stdin names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run's process says when it is over
    os.nice(5)
    mailbox, output = _Mailbox(0), os.dup(1)
    os.dup2(2, 1)  # what libraries print goes with their errors

    def say(level: str, text: str) -> None:
        try:
            os.write(output, json.dumps({"level": level, "text": text}).encode() + b"\n")
        except OSError:
            pass  # the run's process has ended; nobody is left to be told

    told = mailbox.next(timeout_s=60.0)
    if told is None:
        return
    sys.path[:] = told["path"]  # where the parent finds a tracker of the user's own
    TrackerProcess(told, mailbox, say).run()


if __name__ == "__main__":
    main()
