"""Where the time of a run goes: samples of stacks, sorted by what each process and thread does, as text and picture."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ding_like.types import Json

STARTING, ACTING, ENVS, ROWS, LEARNING, EVALUATING = (
    *("starting", "acting", "stepping envs", "rows and buffer"),
    *("learning", "evaluating"),
)
ENCODING, SENDING, REPORTS, OTHER = "encoding, files", "sending", "logs, pictures", "other"
WORK = (ACTING, ENVS, ROWS, LEARNING, EVALUATING, ENCODING, SENDING, REPORTS, OTHER, STARTING)
_WAITS = "waits for "
WAITS = tuple(
    _WAITS + what for what in ("orders", "batches", "the learner", "inference", "workers", "envs", "messages")
)
WAITS = (*WAITS, "waits")
_LEAST = 0.02  # of its time that a thread works to have a row of its own
_MOST = 0.8  # of its time that a thread works which limits the run

# Functions (with their file) in which a thread waits: the innermost one of a stack.
_WAITING = re.compile(
    r"^(\w+\.|<\w+>\.)*(wait|_wait|_wait_for_tstate_lock|join|readinto|accept|select|poll2?|_poll|_?recv|recv_bytes|"
    r"recv_multipart|read_signed|get_objects|backoff_\w+|_beat|_pass_on|watch) \("
    r"|\((ding_like/comm/ray/leftovers|ding_like/utils/(last_words|fork_server)|multiprocessing/resource_tracker|"
    r"ray/_private/process_watcher)\.py|^(Worker\.main_loop|listen_error_messages) \(ray"
)
# What of a stack, from the innermost function out, says what it does: the first that is found.
_ALWAYS = (
    (re.compile(r"importlib|^(create_comm|build_|compile_config|read_config)"), STARTING),
    (re.compile(r"\(ding_like/worker/evaluator\.py"), EVALUATING),
)
_WORK = (
    (re.compile(r"\(ding_like/(report|agent|study)/|\(matplotlib/|\(PIL/|utils/(metrics|log|trackers)\.py"), REPORTS),
    (re.compile(r"\(ding_like/envs/|\.step \(gymnasium/"), ENVS),
    (re.compile(r"RolloutLoop\._?act |_policy_inference |InferenceServer\.|ActorPart"), ACTING),
    (re.compile(r"\.(grad|apply|minibatches) \(ding_like/policy/|\(ding_like/worker/learner\.py"), LEARNING),
    (
        re.compile(
            r"\((comm/tensors|ding_like/comm/tensors|ding_like/data/segment_file|ding_like/utils/(files|checkpoint)|"
            r"ding_like/comm/rest/messages)\.py|\((json|safetensors|pickle|cloudpickle)/"
        ),
        ENCODING,
    ),
    (re.compile(r"\(ding_like/comm/rest/rows\.py|\(ding_like/pipeline/rows\.py"), ROWS),
    (re.compile(r"\(ding_like/comm/|\((http|requests|urllib3|waitress|flask|werkzeug|zmq|ray)/|\(socket\.py"), SENDING),
    (re.compile(r"\(ding_like/worker/(replay_buffer|collector)/|\(ding_like/data/"), ROWS),
)
_WAIT = (
    (re.compile(r"RestBatchSource\.next|_wait_for_batch"), WAITS[1]),
    (re.compile(r"RestBatchSource\._run|CollectorThread|UpdaterThread"), WAITS[2]),
    (re.compile(r"InferenceClient|evaluate_model"), WAITS[3]),
    (re.compile(r"\(ding_like/envs/manager/"), WAITS[5]),
    (re.compile(r"\.(order|put|task_info|send_data|_claim|claim) \(ding_like"), WAITS[0]),
    (re.compile(r"get_objects|WorkerSet|\(ding_like/(comm|pipeline)/ray/|SeedRunner|RowServer"), WAITS[4]),
    (
        re.compile(
            r"\(waitress/|LockedService|HttpServer\.|InferenceServer|InferenceProxy|CoordinatorRun|^Coordinator\."
        ),
        WAITS[6],
    ),
)
_PROCESS, _THREAD = re.compile(r'^process (\d+):"?(.*?)"?$'), re.compile(r"^thread \((\w+)\)(?:: (.*))?$")
_SERVES = re.compile(r"^(\w+)\.(?:serve|_main_loop) \(ding_like")
_COLOURS = (
    *("#4c9be8", "#2e5f9e", "#8bc6b4", "#e2803c", "#b07cc6", "#d9b44a", "#c9686f", "#8a8a8a", "#b5b5b5", "#5c5c5c"),
    *("#fbe3cf", "#fff3b8", "#d7e7f5", "#e6d9ef", "#d3ece4", "#f6d5d8", "#e8e4dc", "#f2f2f2"),
)


def doing(stack: Sequence[str]) -> str:
    """Return what a stack of functions "name (file:line)", outermost first, does: one of WORK and WAITS."""
    for pattern, name in _ALWAYS:
        if any(pattern.search(frame) for frame in stack):
            return name
    is_waiting = bool(stack) and _WAITING.search(stack[-1]) is not None
    for frame in reversed(stack):
        for pattern, name in _WAIT if is_waiting else _WORK:
            if pattern.search(frame):
                return name
    return WAITS[-1] if is_waiting else OTHER


@dataclass
class ThreadTime:
    """Samples of one thread by what it did."""

    process: int
    name: str
    samples: Counter[str] = field(default_factory=Counter)

    def shares(self) -> dict[str, float]:
        """Return the share of each activity of the thread's time, which sum to 1."""
        total = self.samples.total()
        return {name: self.samples[name] / total for name in (*WORK, *WAITS) if self.samples[name]}

    def share(self, *names: str) -> float:
        """Return the share of activities after the start; 0 for a thread that did nothing after it."""
        total = self.samples.total() - self.samples[STARTING]
        return sum(self.samples[name] for name in names) / total if total else 0.0

    @property
    def works(self) -> float:
        """Share of its time, start included, in which it did not wait."""
        return 1.0 - sum(share for name, share in self.shares().items() if name.startswith("waits"))


@dataclass
class Profile:
    """Times of all threads of a run, with the CPU seconds of its processes."""

    threads: list[ThreadTime]
    labels: dict[int, str]  # of processes
    cpu_s: dict[int, float]  # of processes
    wall_s: float
    cores: int

    @classmethod
    def of(
        cls,
        lines: Iterable[str],
        *,
        cpu_s: Mapping[int, float],
        names: Mapping[int, str],
        wall_s: float,
        cores: int,
    ) -> Profile:
        """Sort samples, lines "process ...;thread ...;function (file:line);... count".

        `names` are those of processes in the system's table, as far as they say something.
        """
        threads: dict[tuple[int, str], ThreadTime] = {}
        labels: dict[int, str] = {}
        for line in lines:
            text, _, count = line.rstrip("\n").rpartition(" ")
            frames, process, name = text.split(";"), 0, ""
            # A command line may hold ";", so that of a process may be several frames.
            for place, frame in enumerate(text.split(";")):
                if match := _PROCESS.match(frame):
                    process = int(match[1])
                elif match := _THREAD.match(frame):
                    # Threads of a pool, numbered alike, are one row.
                    name, frames = re.sub(r"[-_ ]?\d+$", "", match[2] or "thread"), text.split(";")[place + 1 :]
                    break
            if not frames:  # a thread of a library, without Python
                continue
            labels.setdefault(process, names.get(process, ""))
            served = next((found[1] for frame in frames if (found := _SERVES.match(frame))), "")
            labels[process] = labels[process] or served
            time = threads.setdefault((process, name), ThreadTime(process, name))
            time.samples[doing(frames)] += int(count)
        labels = {process: label or f"process {process}" for process, label in labels.items()}
        return cls(list(threads.values()), labels, dict(cpu_s), wall_s, cores)

    def rows(self) -> list[tuple[str, ThreadTime]]:
        """Return the threads that do something, each with its label, by process; main threads first."""
        chosen = [time for time in self.threads if time.works >= _LEAST]
        order = {process: place for place, process in enumerate(self.labels)}
        chosen.sort(key=lambda time: (order[time.process], "MainThread" not in time.name, -time.works))
        return [(f"{self.labels[each.process]} {each.name.replace('MainThread', '')}".strip(), each) for each in chosen]

    @property
    def idle_cores(self) -> float:
        """Number of cores that the run left idle, on average."""
        return max(0.0, self.cores - sum(self.cpu_s.values()) / self.wall_s)

    def table(self) -> list[str]:
        """Return the lines of a table: for each thread its largest shares."""
        rows = self.rows()
        width = max((len(label) for label, _ in rows), default=0)
        lines = []
        for label, time in rows:
            shares = sorted(time.shares().items(), key=lambda item: -item[1])
            told = "  ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.01)
            lines.append(f"{label:{width}}  {told}")
        if left := len(self.threads) - len(rows):
            lines.append(f"not shown: {left} more threads, which wait all the time")
        cpu = ", ".join(f"{self.labels.get(process, process)} {s:.1f}" for process, s in self._cpu_of_processes())
        lines.append(f"CPU seconds in {self.wall_s:.1f} s: {cpu}")
        lines.append(f"idle cores: {self.idle_cores:.1f} of {self.cores}")
        return lines

    def _cpu_of_processes(self) -> list[tuple[int, float]]:
        return [item for item in sorted(self.cpu_s.items(), key=lambda item: -item[1]) if item[1] >= 0.1]

    def verdict(self) -> str:
        """Return a sentence that names what limits the run, by what was done after the start."""
        learner = max(self.threads, key=lambda time: time.samples[LEARNING], default=None)
        if learner is None or not learner.samples[LEARNING]:
            return "Nothing was learned while the run was watched: watch it longer (--seconds)."
        learns = learner.share(LEARNING)
        collectors = [
            each for each in self.threads if each is not learner and each.samples[ENVS] + each.samples[ACTING]
        ]
        if not collectors:
            parts = {name: learner.share(name) for name in WORK if name not in (STARTING, OTHER)}
            most = max(parts, key=lambda name: parts[name])
            return f"One thread collects and learns: {most} takes most of its time, {parts[most]:.0%}."
        busy = sum(each.share(ENVS, ACTING, ROWS) for each in collectors) / len(collectors)
        told = f"The learner learns {learns:.0%} of the time, collectors act and step envs {busy:.0%} of theirs"
        if learns >= _MOST:
            return f"{told}: the learner limits the run. More workers do not help; cheaper updates, or fewer, do."
        if busy >= _MOST:
            idle = f"{self.idle_cores:.1f} idle cores"
            return f"{told}: collecting limits the run. More workers help as long as there are idle cores: {idle}."
        if self.idle_cores < 0.2:
            return f"{told}: all {self.cores} cores are busy, and limit the run."
        return f"{told}: neither limits the run; the waits above say who waits for whom."

    def to_plain(self) -> dict[str, Json]:
        """Return the figures as JSON takes them."""
        threads = [
            {"process": time.process, "label": label, "thread": time.name, "shares": time.shares()}
            for label, time in self.rows()
        ]
        processes = {
            str(process): {"label": self.labels.get(process, ""), "cpu_s": s} for process, s in self.cpu_s.items()
        }
        whole = {"wall_s": self.wall_s, "cores": self.cores, "idle_cores": self.idle_cores, "verdict": self.verdict()}
        return {**whole, "threads": threads, "processes": processes}

    def draw(self, path: Path) -> None:
        """Draw a bar for each thread that does something, with its shares side by side."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        rows = self.rows()[::-1]
        figure, panel = pyplot.subplots(figsize=(11, 1.6 + 0.36 * len(rows)))
        left = [0.0] * len(rows)
        for name, colour in zip((*WORK, *WAITS), _COLOURS, strict=True):
            widths = [100 * time.shares().get(name, 0.0) for _, time in rows]
            if any(widths):
                panel.barh(
                    range(len(rows)), widths, left=left, color=colour, label=name, edgecolor="white", linewidth=0.4
                )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        panel.set(yticks=range(len(rows)), yticklabels=[label for label, _ in rows], xlim=(0, 100))
        panel.set_xlabel(f"share of its time [%]; idle cores: {self.idle_cores:.1f} of {self.cores}")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
        figure.savefig(path, dpi=110, bbox_inches="tight")
        pyplot.close(figure)


def group_cpu(samples: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return the largest CPU seconds that were seen of each process: they only grow."""
    found: dict[int, float] = defaultdict(float)
    for process, seconds in samples:
        found[process] = max(found[process], seconds)
    return dict(found)
