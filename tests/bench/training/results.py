"""The runs of a program in a case, and what they say about the bars. Nothing here does any I/O."""

import dataclasses
import statistics

from .cases import SECONDS


@dataclasses.dataclass
class Runs:
    """All runs of one program in one case. A program that failed once is not run again."""
    versions: str = ""
    measurements: list = dataclasses.field(default_factory=list)
    clocks: list = dataclasses.field(default_factory=list)
    failure: str | None = None

    @property
    def value(self):
        """The median; None if there is no figure."""
        if self.failure or not self.measurements:
            return None
        return statistics.median(one.value for one in self.measurements)

    @property
    def spread_percent(self):
        """The largest difference of two runs, of the median."""
        values = [one.value for one in self.measurements]
        return 100 * (max(values) - min(values)) / self.value if self.value else 0.0

    def largest(self, field):
        found = (getattr(one, field) for one in self.measurements)
        return max((value for value in found if value is not None), default=None)

    @property
    def clock(self):
        return statistics.median(self.clocks) if self.clocks else None


@dataclasses.dataclass
class CaseResult:
    case: object
    ours: Runs = dataclasses.field(default_factory=Runs)
    peers: dict = dataclasses.field(default_factory=dict)  # name -> Runs
    left_out: str | None = None  # why the case was not measured

    def best_peer(self):
        """The name of the fastest peer; None if none has a figure."""
        found = [name for name, runs in self.peers.items() if runs.value]
        return max(found, key=lambda name: self.case.times(self.peers[name].value, 1), default=None)

    def times(self, peer):
        """How many times as fast ours is as a peer."""
        ours, theirs = self.ours.value, self.peers[peer].value
        return self.case.times(ours, theirs) if ours and theirs else None


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison. A bar that is missed fails the run; a goal is only shown."""
    what: str
    measured: float
    limit: float
    unit: str
    at_least: bool
    is_bar: bool
    source: str = ""  # of a bar: the figure that it comes from

    @property
    def met(self):
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def checks(result, bar, beside=None):
    """All comparisons of a case with a figure. `beside`: the result that it is compared with."""
    case, ours = result.case, result.ours
    if bar is None or not ours.value:
        return
    less = case.unit == SECONDS
    peak, plan = ours.largest("peak_gib"), ours.largest("plan_gib")
    best = result.best_peer()
    ratio = case.times(ours.value, beside.ours.value) if beside and beside.ours.value else None
    deviation = 100 * abs(plan / peak - 1) if peak and plan else None
    source = f"{bar.commit}, {bar.date}"
    for what, measured, limit, unit, at_least, is_bar in (
            ("release bar", ours.value, bar.release(less), case.unit, not less, True),
            ("memory", peak, bar.release_memory(), "GiB", False, True),
            ("goal", ours.value, bar.goal, case.unit, not less, False),
            ("memory goal", peak, bar.memory_goal_gib, "GiB", False, False),
            (f"beside {case.beside}", ratio, bar.beside_goal, "x", True, False),
            (f"beside {best}", best and result.times(best), bar.times_best_peer, "x", True, False),
            ("plan of memory", deviation, bar.plan_within_percent, "% off", False, False)):
        if measured is not None and limit is not None:
            yield Check(what, measured, limit, unit, at_least, is_bar, source if is_bar else "")
