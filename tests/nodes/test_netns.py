"""Tests of netns.py: its hosts must cut, lose and delay packets and vanish as promised."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

import netns
from netns import Net
from harness import alive, comm, until

PYTHON = [sys.executable, "-S", "-E", "-c"]
# Answers every line over TCP and every datagram at port 9 with the address of its sender.
ECHO = """
import socket, threading
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); udp.bind(("::", 9))
def answer():
    while True:
        data, peer = udp.recvfrom(2048)
        udp.sendto(peer[0].encode(), peer)
threading.Thread(target=answer, daemon=True).start()
def serve(client, peer):
    while client.recv(64): client.sendall(peer[0].encode())
server = socket.create_server(("::", 9), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    client, peer = server.accept()
    threading.Thread(target=serve, args=(client, peer), daemon=True).start()
"""
ASK_TCP = """
import socket, sys
with socket.create_connection((sys.argv[1], 9), 3) as s:
    s.sendall(b"?"); print(s.recv(64).decode())
"""
ASK_UDP = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
def answers(wait):
    s.settimeout(wait)
    try:
        while s.recv(64): yield 1
    except OSError:
        pass
count, got = int(sys.argv[2]), 0
for i in range(count):
    s.sendto(b"?", (sys.argv[1], 9))
    if i % 20 == 19: got += sum(answers(0.002))
print(got + sum(answers(0.5)))
"""


@unittest.skipIf(netns.reason_to_skip(), netns.reason_to_skip())
class NetTest(unittest.TestCase):
    def net(self, *args, **kwargs):
        net = Net(*args, **kwargs)
        self.addCleanup(net.close)
        return net

    def echo(self, host):
        server = host.start([*PYTHON, ECHO], stdout=subprocess.PIPE)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        self.assertEqual(server.stdout.readline(), b"listening\n")
        return server

    def ask(self, host, address):
        """The answer over TCP of the echo at the address; empty if there is none."""
        return host.run([*PYTHON, ASK_TCP, address]).stdout.strip()

    def answered(self, host, address, count=10):
        """The number of datagrams, out of `count`, that were answered."""
        return int(host.run([*PYTHON, ASK_UDP, address, count]).stdout)


class Wires(NetTest):
    def test_hosts_reach_each_other_over_tcp_and_udp(self):
        net = self.net(3)
        self.echo(net[0])
        for host in net.hosts[1:]:
            self.assertIn(host.v4, self.ask(host, net[0].v4))
            self.assertEqual(self.answered(host, net[0].v4), 10)

    def test_hosts_reach_each_other_over_ipv6(self):
        if not netns.has_ipv6():
            self.skipTest("this kernel has no IPv6")
        net = self.net(2)
        self.echo(net[0])
        self.assertEqual(self.ask(net[1], net[0].v6), net[1].v6)
        self.assertEqual(self.answered(net[1], net[0].v6), 10)

    def test_a_second_nic_is_another_subnet(self):
        net = self.net(2, second_nic=True)
        self.echo(net[0])
        self.assertIn(net[1].second_v4, self.ask(net[1], net[0].second_v4))

    def test_a_cut_host_is_alone_until_it_is_healed(self):
        net = self.net(3)
        self.echo(net[0])
        net[1].cut()
        self.assertEqual(self.answered(net[1], net[0].v4), 0)
        self.assertEqual(self.answered(net[2], net[0].v4), 10)
        net[1].heal()
        # ARP retries once a second for an address that it has not found.
        until(lambda: self.answered(net[1], net[0].v4) == 10, 10, "answers after the cut")

    def test_one_way_cuts_cut_one_direction(self):
        for cut, heard in (("cut_out", 0), ("cut_in", 10)):
            with self.subTest(cut), Net(2) as net:
                self.assertTrue(self.answers_before(net))
                getattr(net[1], cut)()
                seen = net[0].start([*PYTHON, "import socket; s = socket.socket(socket.AF_INET, "
                                     "socket.SOCK_DGRAM); s.bind(('', 9)); s.settimeout(1)\n"
                                     "print('up', flush=True)\ngot = 0\n"
                                     "try:\n  while s.recv(9): got += 1\n"
                                     "except TimeoutError: print(got)"], stdout=subprocess.PIPE)
                self.assertEqual(seen.stdout.readline(), b"up\n")
                self.assertEqual(self.answered(net[1], net[0].v4), 0)
                self.assertEqual(int(seen.communicate(timeout=20)[0]), heard)

    def answers_before(self, net):
        """Waits for one answer: both hosts then know each other's hardware address before a cut."""
        server = net[0].start([*PYTHON, ECHO], stdout=subprocess.PIPE)
        with server.stdout as out:
            out.readline()
            answer = self.ask(net[1], net[0].v4)
        server.kill()
        server.wait()
        return answer

    def test_dropped_datagrams_are_lost_and_tcp_passes(self):
        net = self.net(3)
        self.echo(net[0])
        dropped = net[1].drop_datagrams()
        self.assertEqual(self.answered(net[1], net[0].v4), 0)
        self.assertIn(net[1].v4, self.ask(net[1], net[0].v4))
        self.assertEqual(self.answered(net[2], net[0].v4), 10)
        self.assertEqual(dropped(), 10)

    def test_a_host_that_rejects_datagrams_cannot_send_them(self):
        net = self.net(2)
        self.echo(net[0])
        refused = net[1].refuse_datagrams()
        sent = net[1].run([*PYTHON, ASK_UDP, net[0].v4, 10])
        self.assertIn("PermissionError", sent.stderr)
        self.assertIn(net[1].v4, self.ask(net[1], net[0].v4))
        self.assertEqual(refused(), 1)

    def test_packets_are_counted(self):
        net = self.net(2)
        self.echo(net[0])
        asked, others = net[0].counter("udp dport 9"), net[0].counter("udp dport 10")
        self.assertEqual(self.answered(net[1], net[0].v4), 10)
        self.assertEqual((asked(), others()), (10, 0))

    def test_packet_loss_has_the_given_share_and_tcp_passes(self):
        net = self.net(2)
        self.echo(net[0])
        net[1].lose(0.3)
        share = self.answered(net[1], net[0].v4, 3000) / 3000
        self.assertAlmostEqual(share, 0.7 * 0.7, delta=0.06)
        until(lambda: self.ask(net[1], net[0].v4), 30, "an answer")

    def test_a_slow_wire_delays_every_packet(self):
        if not netns.can_delay():
            self.skipTest("/dev/net/tun cannot be opened")
        net = self.net(2)
        self.echo(net[0])
        for seconds in (0.2, 0.05):
            net[1].delay(seconds)
            start = time.monotonic()
            self.assertIn(net[1].v4, self.ask(net[1], net[0].v4))
            # ARP, the TCP handshake and the request: a round trip each.
            self.assertGreaterEqual(time.monotonic() - start, 4 * seconds)
            self.assertEqual(self.answered(net[1], net[0].v4, 10), 10)
        net[1].heal()
        start = time.monotonic()
        self.assertIn(net[1].v4, self.ask(net[1], net[0].v4))
        self.assertLess(time.monotonic() - start, 0.2)

    def test_a_slow_wire_carries_many_packets_at_a_time(self):
        if not netns.can_delay():
            self.skipTest("/dev/net/tun cannot be opened")
        net = self.net(2)
        net[1].delay(0.02)
        server = net[0].start([*PYTHON, "import socket; s = socket.create_server(('', 9))\n"
                               "print('up', flush=True); c = s.accept()[0]\n"
                               "n = 0\nwhile data := c.recv(1 << 16): n += len(data)\nprint(n)"],
                              stdout=subprocess.PIPE)
        self.assertEqual(server.stdout.readline(), b"up\n")
        sent = net[1].run([*PYTHON, "import socket; s = socket.create_connection(("
                           f"'{net[0].v4}', 9)); s.sendall(bytes(4 << 20))"])
        self.assertEqual(sent.returncode, 0, sent.stderr)
        self.assertEqual(int(server.communicate(timeout=20)[0]), 4 << 20)


class Names(NetTest):
    def look_up(self, host, name):
        return host.run([*PYTHON, f"import socket; print(socket.gethostbyname({name!r}))"]
                        ).stdout.strip()

    def test_names_resolve_once_the_host_has_them(self):
        net = self.net(2)
        self.assertEqual(net[1].run(["uname", "-n"]).stdout, "host1\n")
        start = time.monotonic()
        self.assertEqual(self.look_up(net[1], "host1"), "")
        self.assertEqual(self.look_up(net[1], "host0"), "")
        self.assertLess(time.monotonic() - start, 10)
        net[1].set_names({"host0": net[0].v4})
        self.assertEqual(self.look_up(net[1], "host0"), net[0].v4)
        self.assertEqual(self.look_up(net[0], "host0"), "")

    def test_the_machine_s_own_name_and_files_are_unchanged(self):
        hosts = pathlib.Path("/etc/hosts")
        before = socket.gethostname(), hosts.read_text()
        self.net(1)
        self.assertEqual((socket.gethostname(), hosts.read_text()), before)


class Processes(NetTest):
    def test_signals_reach_the_process_itself(self):
        net = self.net(1)
        for signo in (signal.SIGTERM, signal.SIGKILL):
            sleeping = net[0].start(["sleep", "100"])
            until(lambda: net[0].pids() == [sleeping.pid] and comm(sleeping.pid) == "sleep")
            sleeping.send_signal(signo)
            self.assertEqual(sleeping.wait(5), -signo)
        self.assertEqual(net.pids(), [])

    def test_a_process_runs_in_the_given_folder(self):
        net = self.net(1)
        self.assertEqual(net[0].run(["pwd"], folder=net.dir).stdout.strip(), str(net.dir))

    def test_frozen_processes_do_not_run(self):
        net = self.net(2)
        sleeping = net[0].start(["sleep", "100"])
        until(lambda: net[0].pids() == [sleeping.pid])

        def state():
            return pathlib.Path(f"/proc/{sleeping.pid}/stat").read_text().rsplit(")", 1)[1][1]
        net[0].freeze()
        until(lambda: state() == "T")
        net[0].thaw()
        until(lambda: state() == "S")
        sleeping.kill()
        sleeping.wait()

    def test_hosts_have_their_own_clocks(self):
        if not netns.has_clocks():
            self.skipTest("this kernel has no time namespaces")
        net = self.net(3, clocks=netns.CLOCKS_APART)
        for host, ahead in zip(net.hosts, netns.CLOCKS_APART, strict=True):
            self.assertAlmostEqual(host.clock_ahead(), ahead, delta=5)

    def test_a_clock_behind_ours_is_rejected_because_a_fresh_machine_could_not_set_it(self):
        with self.assertRaisesRegex(ValueError, "clock -1: a host's clock can only be ahead"):
            self.net(1, clocks=[-1])

    def test_no_process_is_left_when_the_net_is_closed(self):
        net = self.net(2)
        process = net[0].start(["sh", "-c", "sleep 100 & sleep 100"])
        until(lambda: len(net[0].pids()) == 3)
        pids = [*net.pids(), net[0].pid, net[1].pid, net.switch.pid]
        net.close()
        process.wait()
        self.assertFalse([pid for pid in pids if alive(pid)])
        self.assertFalse(net.dir.exists())

    def test_no_process_is_left_when_the_creator_of_the_net_is_killed(self):
        script = ("import sys, time; sys.path[:0] = sys.argv[1:]; import netns\n"
                  "net = netns.Net(2); p = net[1].start(['sleep', '100'])\n"
                  "print(net.dir, net.switch.pid, net[0].pid, net[1].pid, p.pid, flush=True)\n"
                  "time.sleep(100)")
        maker = subprocess.Popen([sys.executable, "-c", script, str(netns.HERE)],
                                 stdout=subprocess.PIPE, text=True)
        with maker.stdout as printed:
            folder, *pids = printed.readline().split()
        self.addCleanup(subprocess.run, ["rm", "-rf", folder], check=False)
        self.assertTrue(all(alive(int(pid)) for pid in pids))
        maker.kill()
        maker.wait()
        until(lambda: not any(alive(int(pid)) for pid in pids))

    def test_the_machine_s_own_network_is_unchanged(self):
        def seen():
            return (subprocess.run(["ip", "-o", "link"], capture_output=True, check=True).stdout,
                    os.listdir("/run/netns") if os.path.isdir("/run/netns") else [])
        before = [line.split()[1] for line in seen()[0].splitlines()], seen()[1]
        self.net(2)
        self.assertEqual(([line.split()[1] for line in seen()[0].splitlines()], seen()[1]), before)


if __name__ == "__main__":
    unittest.main()
