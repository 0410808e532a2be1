"""Reads the notes of counting workers and checks that they are those of one correct job."""

import dataclasses
import json
import pathlib


@dataclasses.dataclass
class Life:
    """One process of the counting worker, read from its log."""
    host: str
    pid: int
    agent: int  # the pid of its mgpu-run
    rank: int
    size: int
    env: dict  # its environment variables; names in lower case
    first: float  # seconds, CLOCK_MONOTONIC outside of time namespaces
    last: float = 0.0
    world: str = ""
    start: int = -1
    steps: list = dataclasses.field(default_factory=list)
    ended_well: bool = False


@dataclasses.dataclass
class World:
    """The processes that counted together."""
    name: str
    lives: list

    @property
    def size(self):
        return self.lives[0].size

    @property
    def hosts(self):
        """The hosts, ordered by rank."""
        return [life.host for life in sorted(self.lives, key=lambda life: life.rank)]

    @property
    def agents(self):
        return {life.agent for life in self.lives}

    @property
    def restarts(self):
        return int(self.lives[0].env["torchelastic_restart_count"])

    @property
    def first(self):
        return min(life.first for life in self.lives)

    @property
    def last(self):
        return max(life.last for life in self.lives)

    @property
    def steps(self):
        """The number of steps that every rank has done."""
        return min(len(life.steps) for life in self.lives) if len(self.lives) == self.size else 0

    @property
    def pids(self):
        return [life.pid for life in sorted(self.lives, key=lambda life: life.rank)]


def read_life(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    if not lines:
        return None
    born = lines[0]
    env = {key: value for key, value in born.items()
            if key not in ("t", "host", "pid", "agent", "rank", "size")}
    life = Life(born["host"], born["pid"], born["agent"], born["rank"], born["size"], env,
                born["t"])
    for line in lines:
        life.last = line["t"]
        life.world = line.get("world", life.world)
        life.start = line.get("start", life.start)
        life.ended_well = line.get("end", life.ended_well)
        if "step" in line:
            life.steps.append(line["step"])
    return life


_READ = {}  # path -> (its stamp, life): most logs no longer change


def lives(folder):
    found = []
    for path in pathlib.Path(folder).glob("log.*"):
        stat = path.stat()
        stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if _READ.get(path, (None,))[0] != stamp:
            _READ[path] = stamp, read_life(path)
        found.append(_READ[path][1])
    return [life for life in found if life]


def worlds(folder):
    """All worlds, ordered by their start."""
    by_name = {}
    for life in lives(folder):
        if life.world:
            by_name.setdefault(life.world, []).append(life)
    return sorted((World(name, members) for name, members in by_name.items()),
                  key=lambda world: world.first)


def checkpoint(folder):
    path = pathlib.Path(folder) / "checkpoint.json"
    return json.loads(path.read_text()) if path.exists() else {"step": 0, "worlds": []}


def _wrong_in_world(world):
    def differ(what, values):
        if len(set(values)) != 1:
            yield f"world {world.name}: its ranks have different {what}: {sorted(set(values))}"
    yield from differ("sizes", [life.size for life in world.lives])
    yield from differ("first steps", [life.start for life in world.lives])
    for name in ("torchelastic_restart_count", "group_world_size", "torchelastic_run_id"):
        yield from differ(name, [str(life.env[name]) for life in world.lives])
    ranks = sorted(life.rank for life in world.lives)
    if len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(world.size)):
        yield f"world {world.name} of {world.size} has the ranks {ranks}"
    for life in world.lives:
        if life.steps != list(range(life.start, life.start + len(life.steps))):
            yield f"world {world.name}: rank {life.rank} has gaps: {life.start}, {life.steps}"
    most = max(len(life.steps) for life in world.lives)
    if most > 1 and len(world.lives) != world.size:
        yield f"world {world.name}: {len(world.lives)} ranks did what needs {world.size}"
    if most - min(len(life.steps) for life in world.lives) > 1:
        yield f"world {world.name}: its ranks are not in step"


def _wrong_between(found):
    """Without etcd the restart count is lost when all agents, the leader too, are new."""
    known = set()
    for one, next_one in zip(found, found[1:]):
        known |= one.agents
        if next_one.first <= one.last:
            yield (f"worlds {one.name} and {next_one.name} at the same time, for "
                   f"{one.last - next_one.first:.3f} s")
        if next_one.restarts < one.restarts and next_one.agents & known:
            yield f"the restart count fell from {one.restarts} to {next_one.restarts}"


def _wrong_beside(found, strays):
    """A process that joined no world must have started after one and died before the next. It may
    have belonged to a world that lacks ranks."""
    for world in found:
        for life in strays:
            if len(world.lives) >= world.size and (
                    world.first <= life.last and life.first <= world.last):
                yield f"pid {life.pid} on {life.host} ran beside the world {world.name}"


def _wrong_in_checkpoint(found, saved):
    """Every step must be committed once, in order, by the world that ran at the time."""
    step, commits = 0, {name: (first, last) for name, first, last in saved["worlds"]}
    if len(commits) != len(saved["worlds"]):
        yield "a world committed steps, then another, then the first again"
    for world in found:
        if world.lives[0].start != step:
            yield f"world {world.name} began at step {world.lives[0].start} instead of {step}"
        first, last = commits.pop(world.name, (step, step - 1))
        if first != step:
            yield f"world {world.name} committed {first} first, and {step} was next"
        done = world.lives[0].start + max(len(life.steps) for life in world.lives)
        sure = world.lives[0].start + world.steps
        if not last + 1 <= sure:
            yield f"world {world.name} committed step {last}, and not all of its ranks did it"
        if done > last + 2:
            yield f"world {world.name} did steps up to {done - 1}, and only {last} is saved"
        step = max(step, last + 1)
    if commits:
        yield f"worlds that nobody noted committed steps: {sorted(commits)}"
    if step != saved["step"]:
        yield f"the checkpoint is at {saved['step']}, the worlds say {step}"


def wrong(folder):
    """The errors in the notes in a folder; empty if there are none."""
    found, saved = worlds(folder), checkpoint(folder)
    problems = [path.read_text().strip() for path in pathlib.Path(folder).glob("violation.*")]
    for world in found:
        problems += _wrong_in_world(world)
    strays = [life for life in lives(folder) if not life.world]
    return [*problems, *_wrong_between(found), *_wrong_beside(found, strays),
            *_wrong_in_checkpoint(found, saved)]
