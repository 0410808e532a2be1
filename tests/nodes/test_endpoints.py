"""Endpoints without a leader: the agent reports it, keeps trying, and ends with status 75."""

import subprocess
import sys
import time
import unittest

from nodes_job import COULD_NOT_JOIN, PORT, NodesTest, lines_with


class Elsewhere(NodesTest):
    join_timeout = 3

    def check_could_not_join(self, address, *agents, limit=20):
        start = time.monotonic()
        for agent in agents:
            self.assertEqual(agent.wait(self.join_timeout + limit), COULD_NOT_JOIN, agent.err)
            self.assertIn(address, agent.err)
        self.assertLess(time.monotonic() - start, self.join_timeout + limit)
        self.assertEqual(self.worlds(), [])

    def assert_reason(self, agent, *reasons):
        self.assertTrue(lines_with(agent.err, *reasons), agent.err)

    def test_an_address_without_a_host_is_reported_and_retried(self):
        agent = self.agent(1, 2, rdzv=self.rdzv("10.77.0.99:29400"))
        self.check_could_not_join("10.77.0.99", agent)
        self.assert_reason(agent, "no route", "timed out", "unreachable")
        self.assert_nothing_left()

    def test_an_unreachable_network_is_reported_and_retried(self):
        agent = self.agent(1, 2, rdzv=self.rdzv("192.0.2.1:29400"))
        self.check_could_not_join("192.0.2.1", agent)
        self.assert_reason(agent, "unreachable")

    def test_a_host_that_drops_all_packets_is_reported_and_retried(self):
        self.net[0].cut()
        agent = self.agent(1, 2)
        self.check_could_not_join(self.net[0].v4, agent)

    def test_a_host_without_a_leader_is_reported_and_retried(self):
        agent = self.agent(1, 2)
        self.check_could_not_join(self.net[0].v4, agent)
        self.assert_reason(agent, "refused")

    def test_a_name_that_never_resolves_is_reported_and_retried(self):
        agent = self.agent(1, 2, rdzv=self.rdzv("no-such-host.example:29400"))
        self.check_could_not_join("no-such-host.example", agent)

    def check_some_other_service(self, program):
        service = self.net[0].start([sys.executable, "-S", "-E", "-c", program],
                                    stdout=subprocess.PIPE)
        with service.stdout as out:
            self.assertEqual(out.readline(), b"up\n")
        agent = self.agent(1, 2)
        self.check_could_not_join(self.net[0].v4, agent)
        self.assertLess(len(agent.err), 5000)  # the message is not repeated for each try
        service.kill()
        service.wait()
        self.assert_nothing_left()

    def test_another_service_that_answers_is_not_taken_for_a_leader(self):
        self.check_some_other_service(
            f"import socket\ns = socket.create_server(('', {PORT})); print('up', flush=True)\n"
            "while True:\n  c = s.accept()[0]; c.recv(64)\n"
            "  c.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n'); c.close()")

    def test_another_service_that_closes_is_not_taken_for_a_leader(self):
        self.check_some_other_service(
            f"import socket\ns = socket.create_server(('', {PORT})); print('up', flush=True)\n"
            "while True: s.accept()[0].close()")

    def test_another_service_that_is_silent_is_not_taken_for_a_leader(self):
        self.check_some_other_service(
            f"import socket\ns = socket.create_server(('', {PORT})); print('up', flush=True)\n"
            "kept = []\nwhile True: kept.append(s.accept()[0])")

    def test_another_service_that_never_stops_sending_is_not_taken_for_a_leader(self):
        self.check_some_other_service(
            f"import socket, threading\ns = socket.create_server(('', {PORT}))\n"
            "print('up', flush=True)\ndef talk(c):\n"
            "  try:\n    while True: c.sendall(bytes(65536))\n  except OSError: pass\n"
            "while True: threading.Thread(target=talk, args=(s.accept()[0],), daemon=True).start()")

    def test_a_port_in_use_on_the_leader_s_host_is_reported(self):
        taken = self.net[0].start([sys.executable, "-S", "-E", "-c",
                                   f"import socket\ns = socket.create_server(('', {PORT}))\n"
                                   "print('up', flush=True)\nwhile True: s.accept()[0].close()"],
                                  stdout=subprocess.PIPE)
        with taken.stdout as out:
            self.assertEqual(out.readline(), b"up\n")
        agent = self.agent(0, 2)
        self.assertNotEqual(agent.wait(self.join_timeout + 20), 0)
        self.assertIn(str(PORT), agent.err)
        taken.kill()
        taken.wait()


if __name__ == "__main__":
    unittest.main()
