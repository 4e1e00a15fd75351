"""Hold learning and collecting to the ratio of the config, whichever is faster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateRatio:
    """Say how many updates a number of env steps allows, and how many env steps a number of updates.

    Collecting begins with `warmup_steps` at random, then `updates` updates follow each `steps` env steps. Collectors
    may be ahead by `max_lead` env steps. In one process a step is a segment or a row: see `per_segment`, `per_rows`.
    """

    warmup_steps: int
    steps: int
    updates: int
    max_lead: int

    @classmethod
    def per_segment(cls, updates: int) -> UpdateRatio:
        """Return the ratio of `updates` for each segment, however many env steps it took.

        A segment is collected once the first update with the one before has been handed out.
        """
        return cls(warmup_steps=0, steps=1, updates=updates, max_lead=1)

    @classmethod
    def per_rows(cls, updates: int, rows: int) -> UpdateRatio:
        """Return the ratio of `updates` for each `rows` rows, whatever the segments that bring them.

        More are collected once the first update with the ones before has been handed out.
        """
        return cls(warmup_steps=0, steps=rows, updates=updates, max_lead=rows)

    def allowed_updates(self, env_step: int) -> int:
        """Return how many updates may have been taken when `env_step` steps have."""
        return max(0, env_step - self.warmup_steps) * self.updates // self.steps

    def credit(self, env_step: int, granted: int) -> int:
        """Return how many more env steps may be taken while `granted` updates have been handed out."""
        if not self.updates:
            return self.max_lead  # nothing is learned that collecting could run ahead of
        needed = self.warmup_steps + -(-granted * self.steps // self.updates)
        return max(0, needed + self.max_lead - env_step)

    @property
    def lasting_credit(self) -> int:
        """Return the credit that there is, at least, whenever all updates that are allowed were handed out."""
        return max(1, self.max_lead - -(-self.steps // max(self.updates, 1)))


@dataclass(frozen=True)
class OnPolicyRatio:
    """Collect a batch of `batch_rows` rows with the newest weights, learn from it once, and so on.

    With `batch_segments` a batch is so many segments of whole episodes, however many rows they have, and an order of
    one row stands for one of them.
    """

    batch_rows: int
    batch_segments: int = 0


def least_lead(*, warmup_steps: int, steps: int, updates: int, segment_steps: int, batch_steps: int) -> int:
    """Return the smallest lead, in env steps, with which neither side waits for the other for ever.

    Collectors are given a whole segment, of `segment_steps` env steps, or nothing, an update needs `steps / updates`
    env steps, and the first needs a whole batch, which takes `batch_steps`, even where there is no warm-up.
    """
    return max(0, batch_steps - warmup_steps) + segment_steps + -(-steps // updates)
