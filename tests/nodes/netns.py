"""Network namespaces as hosts. A bridge in another namespace connects them.

A Net changes nothing outside its namespaces. They have no names: a process holds each of them, and
that process dies with the one that created the Net, however that one ends. So does every process
that was started in a host.
"""

import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from harness import until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
WITH_US = ["setpriv", "--pdeathsig", "KILL"]
SPACES = ["--net", "--uts", "--mount", *(
    ["--time"] if pathlib.Path("/proc/self/ns/time").exists() else [])]
NAMES = "127.0.0.1 localhost\n::1 localhost\n"


@functools.lru_cache(maxsize=None)
def reason_to_skip():
    """Why network namespaces cannot be used here; None if they can."""
    for tool in ("ip", "nft", "unshare", "nsenter", "setpriv"):
        if not shutil.which(tool):
            return f"there is no {tool} here"
    rule = 'table bridge t { chain c { type filter hook forward priority 0; drop; }; }'
    for what, probe in (
            ("namespaces", ["true"]),
            ("a bridge and veth", ["sh", "-ec", "ip link add br0 type bridge; "
                                   "ip link add h0 type veth peer name h1"]),
            ("nftables for bridges", ["nft", rule])):
        tried = subprocess.run(["unshare", *SPACES, *probe],
                               capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            return f"{what} cannot be had here: {tried.stderr.strip()[-200:]}"
    return None


# Seconds by which the monotonic clocks of three hosts are ahead of ours: one of them by about a day.
# None is negative: the kernel refuses a clock that would read less than zero, as it would on a
# machine that booted minutes ago.
CLOCKS_APART = (3000, 93000, 0)


def has_clocks():
    """Whether hosts can have their own clocks."""
    return "--time" in SPACES


def has_ipv6():
    return pathlib.Path("/proc/sys/net/ipv6").exists()


def can_delay():
    return os.access("/dev/net/tun", os.R_OK | os.W_OK)


def send(pid, signo):
    """Sends a signal to a process that may have ended."""
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


def _namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


class Space:
    """A set of namespaces, held by a process that sleeps in it."""

    def __init__(self, clock=0):
        if clock < 0:
            raise ValueError(f"clock {clock}: a host's clock can only be ahead of ours")
        clocks = ["--monotonic", str(clock), "--boottime", str(clock)] if clock else []
        self._holder = subprocess.Popen(
            [*WITH_US, "unshare", *SPACES, *clocks, "sleep", "infinity"],
            stdin=subprocess.DEVNULL)
        self.pid = self._holder.pid
        name = pathlib.Path(f"/proc/{self.pid}/comm")
        until(lambda: name.read_text().strip() == "sleep", 10, "a namespace")
        self._namespace = _namespace(self.pid)

    def enter(self, folder="/"):
        """The words before a command that run it here. Each of them execs, so the process that is
        started becomes the command."""
        return [*WITH_US, "nsenter", "--target", str(self.pid), *SPACES, "env", "-C", str(folder)]

    def call(self, *argv, text=None):
        """Runs a command that must succeed and returns its output."""
        done = subprocess.run([*self.enter(), *map(str, argv)], input=text, text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
        return done.stdout

    def clock_ahead(self):
        """By how many seconds CLOCK_MONOTONIC is ahead of ours here, as a process reads it."""
        read = "import time; print(time.monotonic())"
        return float(self.call(sys.executable, "-S", "-E", "-c", read)) - time.monotonic()

    def pids(self):
        """The processes in this space, without the one that holds it."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if pid != self.pid and _namespace(pid) == self._namespace]

    def close(self):
        """Kills every process in this space. Its namespaces are then gone."""
        deadline = time.monotonic() + 10
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                send(pid, signal.SIGKILL)
            time.sleep(0.005)
        self._holder.kill()
        self._holder.wait()


def _count(space, table, chains):
    """Adds an nft table with these chains; returns a function that reads its packet counters."""
    chains = [f"chain c{number} {{ {chain} }};" for number, chain in enumerate(chains)]
    space.call("nft", f"table {table} {{ {' '.join(chains)} }}")
    return lambda: sum(map(int, re.findall(
        r"packets (\d+)", space.call("nft", "list", "table", *table.split()))))


class Host(Space):
    """One host of a Net, with a name, addresses on the net (v4, v6) and its own clock.

    Only the names given to set_names() resolve; the name of the host itself does not by default.
    """

    def __init__(self, net, index, clock=0):
        super().__init__(clock)
        self.net, self.index, self.clock = net, index, clock
        self.name = f"host{index}"
        self.v4, self.v6 = f"10.77.0.{index + 1}", f"fd00:77::{index + 1}"
        self.second_v4 = f"10.88.0.{index + 1}"  # if the net has a second bridge
        self.lost_in = self.lost_out = 0.0
        self._slow = None
        self._rules = 0
        self._names = net.dir / f"hosts.{index}"
        self.set_names({})

    def set_names(self, names):
        """Replaces the names that resolve here by a dict of name and address."""
        lines = "".join(f"{address} {name}\n" for name, address in names.items())
        self._names.write_text(NAMES + lines)  # written in place, since the file is mounted

    def _configure(self):
        lines = ["link set lo up", f"addr add {self.v4}/24 dev eth0"]
        if has_ipv6():
            lines.append(f"addr add {self.v6}/64 dev eth0 nodad")
        lines.append("link set eth0 up")
        if self.net.second_nic:
            lines += [f"addr add {self.second_v4}/24 dev eth1", "link set eth1 up"]
        self.call("ip", "-batch", "-", text="\n".join(lines) + "\n")
        self.call("sh", "-ec", 'echo "$1" > /proc/sys/kernel/hostname; '
                  'mount --bind "$2" /etc/hosts; mount --bind "$3" /etc/resolv.conf', "sh",
                  self.name, self._names, self.net.dir / "resolv.conf")

    def start(self, argv, folder="/", **popen):
        """Starts a process here. Signals sent to the Popen reach the process itself.

        Call it from the main thread: the process dies with the thread that started it.
        """
        popen.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([*self.enter(folder), *map(str, argv)], **popen)

    def run(self, argv, limit=30, **popen):
        """Runs a command to its end. The result has .returncode, .stdout and .stderr (text)."""
        popen.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([*self.enter(popen.pop("folder", "/")), *map(str, argv)],
                              capture_output=True, text=True, timeout=limit, check=False, **popen)

    def counter(self, match):
        """Counts incoming and outgoing packets that match the nft expression; returns a function
        that reads the count."""
        return self._rule(f"{match} counter")

    def refuse_datagrams(self):
        """Rejects every datagram to and from this host, even from the host to itself, in its own
        firewall: the sender gets an error. Returns a function that reads how many there were."""
        return self._rule("meta l4proto udp counter drop")

    def _rule(self, rule):
        """Adds a counting nft rule for both directions; returns a function to read the count."""
        self._rules += 1
        return _count(self, f"inet rule{self._rules}", [
            f"type filter hook {hook} priority 0; {rule};" for hook in ("input", "output")])

    def drop_datagrams(self):
        """Drops all datagrams from and to this host on the way, even after heal(); returns a
        function that reads how many there were."""
        ports = f'{{ "h{self.index}", "g{self.index}" }}'
        return _count(self.net.switch, f"bridge datagrams{self.index}", [
            f"type filter hook forward priority 0; {way} {ports} meta l4proto udp counter drop;"
            for way in ("iifname", "oifname")])

    def cut(self):
        """Drops all packets from and to this host, as if a cable were cut far away."""
        self._lose(1, 1)

    def cut_in(self):
        """Drops all incoming packets; outgoing ones pass."""
        self._lose(1, 0)

    def cut_out(self):
        """Drops all outgoing packets; incoming ones pass."""
        self._lose(0, 1)

    def lose(self, share):
        """Drops that share of the incoming and of the outgoing TCP and UDP packets."""
        self._lose(share, share)

    def heal(self):
        self._lose(0, 0)
        self.delay(0)

    def _lose(self, share_in, share_out):
        self.lost_in, self.lost_out = share_in, share_out
        self.net.apply()

    def delay(self, seconds):
        """Delays every frame from and to this host by these seconds. Needs can_delay()."""
        switch, port = self.net.switch, f"h{self.index}"
        if self._slow:
            self._slow.kill()
            self._slow.wait()
            switch.call("ip", "link", "set", port, "master", "br0")
            switch.call("ip", "link", "del", f"s{self.index}")
            self._slow = None
        if seconds:
            switch.call("ip", "-batch", "-", text=f"link add s{self.index} type bridge "
                        f"mcast_snooping 0\nlink set s{self.index} up\n")
            self._slow = subprocess.Popen(
                [*switch.enter(), sys.executable, "-S", "-E", HERE / "slow_wire.py", str(seconds),
                 f"s{self.index}", "br0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            with self._slow.stdout as ready:
                if ready.read(5) != b"ready":
                    raise RuntimeError("the slow wire did not start")
            switch.call("ip", "link", "set", port, "master", f"s{self.index}")

    def freeze(self):
        """Stops every process on this host, as when a virtual machine is paused."""
        for pid in self.pids():
            send(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self.pids():
            send(pid, signal.SIGCONT)


class Net:
    """Hosts 0 to n-1 on one subnet. With a second NIC they are on another subnet too.

    clocks: how far each host's CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead of ours, in seconds.
    """

    def __init__(self, hosts, second_nic=False, clocks=()):
        self.second_nic = second_nic
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mgpu-net-"))
        (self.dir / "resolv.conf").write_text("options timeout:1 attempts:1\n")
        self.hosts, self.switch = [], None
        try:
            self.switch = Space()
            for index in range(hosts):
                self.hosts.append(Host(self, index, clocks[index] if index < len(clocks) else 0))
            self._wire()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, index):
        return self.hosts[index]

    def __len__(self):
        return len(self.hosts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _wire(self):
        lines = ["link set lo up"]
        for bridge, port, nic in [("br0", "h", "eth0"), ("br1", "g", "eth1")][:1 + self.second_nic]:
            lines += [f"link add {bridge} type bridge mcast_snooping 0", f"link set {bridge} up"]
            for host in self.hosts:
                name = f"{port}{host.index}"
                lines += [f"link add {name} type veth peer name {nic} netns {host.pid}",
                          f"link set {name} master {bridge}", f"link set {name} up"]
        self.switch.call("ip", "-batch", "-", text="\n".join(lines) + "\n")
        for host in self.hosts:
            host._configure()  # noqa: SLF001

    def apply(self):
        """Applies the cuts and losses of all hosts to the switch, in one transaction."""
        rules = []
        for host in self.hosts:
            for direction, share in (("oifname", host.lost_in), ("iifname", host.lost_out)):
                ports = f'{direction} {{ "h{host.index}", "g{host.index}" }}'
                if share >= 1:
                    rules.append(f"{ports} drop")
                elif share > 0:
                    rules.append(f"{ports} meta l4proto {{ tcp, udp }} "
                                 f"numgen random mod 1000 < {round(1000 * share)} drop")
        chain = "\n".join(["type filter hook forward priority 0; policy accept;", *rules])
        self.switch.call("nft", "-f", "-", text="table bridge faults\ndelete table bridge faults\n"
                         f"table bridge faults {{\nchain forward {{\n{chain}\n}}\n}}\n")

    def pids(self):
        """The processes on all hosts."""
        return [pid for host in self.hosts for pid in host.pids()]

    def close(self):
        """Kills every process on the hosts and removes the hosts."""
        for space in [*self.hosts, *([self.switch] if self.switch else [])]:
            space.close()
        for host in self.hosts:
            if host._slow:  # noqa: SLF001
                host._slow.wait()  # noqa: SLF001
        shutil.rmtree(self.dir, ignore_errors=True)
