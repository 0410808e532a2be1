"""Network namespaces as hosts, joined by a bridge in a namespace of its own.

A Net changes nothing outside its namespaces: these have no names and live as long as a process
that holds each of them, which dies with the process that made the Net, however that one ends. So
does everything that was started in a host.
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
def why_not():
    """Why there can be no network of namespaces here; None if there can."""
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
    """Whether hosts can have clocks of their own."""
    return "--time" in SPACES


def has_ipv6():
    return pathlib.Path("/proc/sys/net/ipv6").exists()


def can_delay():
    return os.access("/dev/net/tun", os.R_OK | os.W_OK)


def send(pid, signo):
    """Signals a process that may be gone."""
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
    """A set of namespaces, kept by a process that sleeps in it."""

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
        """What to put before a command to run it here. Each of them execs: the process that is
        started becomes the command."""
        return [*WITH_US, "nsenter", "--target", str(self.pid), *SPACES, "env", "-C", str(folder)]

    def call(self, *argv, text=None):
        """Runs a command that has to succeed; gives what it printed."""
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
        """The processes that are here, but for the one that holds the place."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if pid != self.pid and _namespace(pid) == self._namespace]

    def close(self):
        """Kills whatever is here. Afterwards the namespaces are gone."""
        deadline = time.monotonic() + 10
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                send(pid, signal.SIGKILL)
            time.sleep(0.005)
        self._holder.kill()
        self._holder.wait()


def _count(space, table, chains):
    """Adds a table of nft's with these chains; gives how many packets its counters have seen."""
    chains = [f"chain c{number} {{ {chain} }};" for number, chain in enumerate(chains)]
    space.call("nft", f"table {table} {{ {' '.join(chains)} }}")
    return lambda: sum(map(int, re.findall(
        r"packets (\d+)", space.call("nft", "list", "table", *table.split()))))


class Host(Space):
    """One host of a Net: a name, addresses on the net (v4, v6), and its own clock.

    Names resolve to nothing but what knows() was given; the name of the host itself neither.
    """

    def __init__(self, net, index, clock=0):
        super().__init__(clock)
        self.net, self.index, self.clock = net, index, clock
        self.name = f"host{index}"
        self.v4, self.v6 = f"10.77.0.{index + 1}", f"fd00:77::{index + 1}"
        self.second_v4 = f"10.88.0.{index + 1}"  # where the net has a second bridge
        self.lost_in = self.lost_out = 0.0
        self._slow = None
        self._rules = 0
        self._names = net.dir / f"hosts.{index}"
        self.knows({})

    def knows(self, names):
        """From now on these names resolve here, as a dict of name and address says."""
        lines = "".join(f"{address} {name}\n" for name, address in names.items())
        self._names.write_text(NAMES + lines)  # in place: the file is mounted

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
        """Starts a process here; signals sent to the Popen reach the process itself.

        To be called from the main thread: the process dies with the thread that started it.
        """
        popen.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([*self.enter(folder), *map(str, argv)], **popen)

    def run(self, argv, limit=30, **popen):
        """Runs a command to its end; the result has .returncode, .stdout and .stderr (text)."""
        popen.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([*self.enter(popen.pop("folder", "/")), *map(str, argv)],
                              capture_output=True, text=True, timeout=limit, check=False, **popen)

    def counter(self, match):
        """Counts from now on the packets that come or leave and match nft's expression; what it
        gives tells how many there were."""
        return self._rule(f"{match} counter")

    def refuse_datagrams(self):
        """No datagram comes here or leaves from now on, not even from here to here, by a firewall
        of the host itself: who sends one gets an error. What it gives tells how many there were."""
        return self._rule("meta l4proto udp counter drop")

    def _rule(self, rule):
        """Adds nft's rule, which counts, for what comes and what leaves; gives how to ask it."""
        self._rules += 1
        return _count(self, f"inet rule{self._rules}", [
            f"type filter hook {hook} priority 0; {rule};" for hook in ("input", "output")])

    def drop_datagrams(self):
        """Datagrams from and to here are lost on the way from now on, also when it is healed; what
        it gives tells how many."""
        ports = f'{{ "h{self.index}", "g{self.index}" }}'
        return _count(self.net.switch, f"bridge datagrams{self.index}", [
            f"type filter hook forward priority 0; {way} {ports} meta l4proto udp counter drop;"
            for way in ("iifname", "oifname")])

    def cut(self):
        """Nothing comes here or leaves from now on, as if a cable were cut far away."""
        self._lose(1, 1)

    def cut_in(self):
        """Nothing comes here; what is sent leaves."""
        self._lose(1, 0)

    def cut_out(self):
        """Nothing leaves; what is sent here comes."""
        self._lose(0, 1)

    def lose(self, share):
        """That share of the TCP and UDP packets is lost, of those that come and that leave."""
        self._lose(share, share)

    def heal(self):
        self._lose(0, 0)
        self.delay(0)

    def _lose(self, share_in, share_out):
        self.lost_in, self.lost_out = share_in, share_out
        self.net.apply()

    def delay(self, seconds):
        """Every frame from and to here takes that much longer, each way. Needs can_delay()."""
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
        """Stops every process that is here now, as when a virtual machine is paused."""
        for pid in self.pids():
            send(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self.pids():
            send(pid, signal.SIGCONT)


class Net:
    """Hosts 0 to n-1, all of them neighbours. With a second NIC they meet on another subnet too.

    clocks are what each host's CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead of ours, in seconds.
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
        """Makes the switch lose what the hosts say. All rules change at once."""
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
        """The processes that are in any of the hosts."""
        return [pid for host in self.hosts for pid in host.pids()]

    def close(self):
        """Ends everything in the hosts and removes them."""
        for space in [*self.hosts, *([self.switch] if self.switch else [])]:
            space.close()
        for host in self.hosts:
            if host._slow:  # noqa: SLF001
                host._slow.wait()  # noqa: SLF001
        shutil.rmtree(self.dir, ignore_errors=True)
