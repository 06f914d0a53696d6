"""Tests of the bot with gpiozero's mock pins, against a loopback server and a topdeck.

    python3 -m unittest -v test_alert_bot            # in this directory

The environment variable TOPDECK_BIN names a topdeck for the tests with a real server.
"""

import http.server
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

try:
    from gpiozero import Device
    from gpiozero.pins.mock import MockFactory
except ImportError:
    raise unittest.SkipTest("gpiozero is not installed: pip install gpiozero") from None

from alert_bot import AGE_MAX_S, RETRY_MAX_S, Board, Bot, Client

# Only a program that hangs takes longer.
TIMEOUT_S = 60


def wait_until(what, condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {TIMEOUT_S} s: {what}")
        time.sleep(0.01)


def firing(fingerprint, **more):
    alert = {"fingerprint": fingerprint, "state": "firing", "acknowledgement": None}
    return {**alert, "silenced_by": [], **more}


class Server:
    """A server that answers what a test says."""

    def __init__(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                status, text = server.status, server.text
                if self.command == "POST":
                    length = int(self.headers["Content-Length"])
                    server.posted.append(json.loads(self.rfile.read(length)))
                    text = "{}"
                server.seen.append((self.path, self.headers.get("Authorization")))
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.status = 200
        self.posted = []
        self.seen = []
        self.set("green")
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def set(self, light, alerts=(), revision=1):
        answer = {"light": light, "revision": revision, "alerts": list(alerts)}
        self.text = json.dumps(answer)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


class BoardTest(unittest.TestCase):
    def setUp(self):
        Device.pin_factory = MockFactory()
        self.board = Board()
        self.now = 1000.0
        self.addCleanup(self.board.close)

    def bot(self, url, **more):
        return Bot(Client(url, **more), self.board, clock=lambda: self.now)

    def assert_shown(self, state):
        self.assertEqual(self.board.state, state)
        self.assertEqual(self.board.green.is_lit, state == "green")

    def press(self):
        """Presses and releases the button. The pin is low while it is pressed."""
        pin = self.board.button.pin
        pin.drive_low()
        pin.drive_high()


class LoopbackTest(BoardTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.close)

    def test_colors_are_shown(self):
        bot = self.bot(self.server.url)
        self.assert_shown("unknown")
        self.assertTrue(bot.poll())
        self.assert_shown("green")
        self.server.set("amber")
        bot.poll()
        self.assert_shown("amber")
        self.server.set("red", [firing("a")])
        bot.poll()
        self.assert_shown("red")
        self.assertTrue(self.board.red.is_lit)

    def test_the_second_request_waits_for_a_change(self):
        bot = self.bot(self.server.url, token="secret")
        bot.poll()
        bot.poll()
        paths = [path for path, _ in self.server.seen]
        self.assertEqual(paths, ["/v1/alerts?", "/v1/alerts?wait=10&since=1"])
        self.assertEqual(self.server.seen[0][1], "Bearer secret")

    def test_what_cannot_be_read_is_unknown_and_never_green(self):
        bot = self.bot(self.server.url)
        good = self.server.text
        bad = ["", "[]", "{}", "null", good.replace("green", "blue"), good[:-1]]
        bad.append('{"light": "green"}')
        for text in bad:
            self.server.text = good
            bot.poll()
            self.assert_shown("green")
            self.server.text = text
            self.assertFalse(bot.poll(), text)
            self.assert_shown("unknown")
        self.server.text = good
        for status in (401, 403, 404, 429, 500, 503):
            self.server.status = 200
            bot.poll()
            self.assert_shown("green")
            self.server.status = status
            self.assertFalse(bot.poll(), status)
            self.assert_shown("unknown")

    def test_a_server_that_is_gone_is_unknown_until_it_is_back(self):
        bot = self.bot(self.server.url)
        bot.poll()
        self.assert_shown("green")
        self.server.close()
        self.assertFalse(bot.poll())
        self.assert_shown("unknown")
        again = Server()
        self.addCleanup(again.close)
        bot.client.server = again.url
        bot.poll()
        self.assert_shown("green")
        # The state, not a change of the one before the loss.
        self.assertEqual(again.seen[0][0], "/v1/alerts?")

    def test_a_server_that_says_nothing_is_unknown(self):
        bot = self.bot(self.server.url, timeout_s=0.2)
        bot.poll()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            bot.client.server = f"http://127.0.0.1:{silent.getsockname()[1]}"
            self.assertFalse(bot.poll())
        self.assert_shown("unknown")

    def test_an_old_answer_is_unknown(self):
        bot = self.bot(self.server.url)
        bot.poll()
        self.now += AGE_MAX_S
        bot.check_age()
        self.assert_shown("green")
        self.now += 1
        bot.check_age()
        self.assert_shown("unknown")
        bot.poll()
        self.assert_shown("green")

    def test_pauses_grow_to_a_limit(self):
        bot = self.bot(self.server.url)
        pauses = []
        for bot.failures in range(1, 30):
            pauses.append(bot.pause_s())
        self.assertLessEqual(pauses[0], 1)
        self.assertTrue(all(0 < pause <= RETRY_MAX_S for pause in pauses))
        self.assertGreaterEqual(pauses[-1], RETRY_MAX_S / 2)

    def test_the_buzzer_tells_of_new_alerts_only(self):
        bot = self.bot(self.server.url)
        self.server.set("red", [firing("a")])
        bot.poll()
        wait_until("the buzzer sounds", lambda: self.board.buzzer.is_active)
        self.press()
        self.assertFalse(self.board.buzzer.is_active)
        bot.poll()
        self.assertFalse(self.board.buzzer.is_active)
        self.server.set("red", [firing("a"), firing("b")])
        bot.poll()
        wait_until("the buzzer sounds", lambda: self.board.buzzer.is_active)
        self.server.set("green")
        bot.poll()
        self.assertFalse(self.board.buzzer.is_active)

    def test_the_button_acknowledges_what_fires(self):
        bot = self.bot(self.server.url)
        self.press()
        alerts = [
            firing("a"),
            firing("b", acknowledgement={"by": "ann"}),
            firing("c", silenced_by=["x"]),
            firing("d", state="pending"),
        ]
        self.server.set("red", alerts)
        bot.poll()
        self.press()
        wanted = {"fingerprint": "a", "for": "1h", "author": "alert-bot"}
        wait_until("it is acknowledged", lambda: self.server.posted == [wanted])
        # What is not known is not acknowledged.
        self.server.status = 500
        bot.poll()
        self.press()
        self.assertEqual(len(self.server.posted), 1)

    def test_the_loop_survives_a_loss_and_ends_unknown(self):
        bot = self.bot(self.server.url)
        thread = threading.Thread(target=bot.run)
        thread.start()
        try:
            wait_until("it is green", lambda: self.board.state == "green")
            self.server.status = 503
            wait_until("it is unknown", lambda: self.board.state == "unknown")
            self.assertFalse(self.board.green.is_lit)
            self.server.status = 200
            wait_until("it is green again", lambda: self.board.state == "green")
        finally:
            bot.stopping.set()
            thread.join(TIMEOUT_S)
        self.assertFalse(thread.is_alive())
        self.assert_shown("unknown")


RULES = """
interval = "1s"
[[rule]]
name = "Deep"
select = "depth"
[[rule.criteria]]
severity = 1
above = 5
"""


@unittest.skipUnless(os.environ.get("TOPDECK_BIN"), "TOPDECK_BIN names no topdeck")
class TopdeckTest(BoardTest):
    """The bot with a real server."""

    def setUp(self):
        super().setUp()
        dir = tempfile.TemporaryDirectory()
        self.addCleanup(dir.cleanup)
        self.dir = dir.name
        # Another program may take the port; then the server ends, and the test fails visibly.
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        with open(f"{self.dir}/rules.toml", "w", encoding="utf-8") as file:
            file.write(RULES)
        with open(f"{self.dir}/topdeck.toml", "w", encoding="utf-8") as file:
            file.write(f'data_dir = "{self.dir}/data"\n[http]\nlisten = ["127.0.0.1:{self.port}"]\n')
            file.write('[alerts]\nrule_files = ["rules.toml"]\n')
        self.process = None
        self.start()
        self.addCleanup(self.stop)

    def start(self):
        command = [os.environ["TOPDECK_BIN"], "serve", "--config", f"{self.dir}/topdeck.toml"]
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=null, stderr=null)
        wait_until("it answers", self.is_up)

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"topdeck ended with status {self.process.returncode}")
        try:
            return urllib.request.urlopen(self.url + "/health", timeout=5).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(TIMEOUT_S)

    def send(self, value):
        body = f"depth,host=a value={value}".encode()
        request = urllib.request.Request(self.url + "/api/v2/write", body)
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()

    def test_an_alert_is_shown_and_acknowledged(self):
        bot = self.bot(self.url)
        thread = threading.Thread(target=bot.run)
        thread.start()
        try:
            wait_until("it is green", lambda: self.board.state == "green")
            self.send(7)
            wait_until("it is red", lambda: self.board.state == "red")
            wait_until("the buzzer sounds", lambda: self.board.buzzer.is_active)
            self.press()
            wait_until("it is acknowledged", lambda: self.board.state == "amber")
            self.assertFalse(self.board.buzzer.is_active)
            history = Client(self.url).request("/v1/alerts/history?event=acknowledged")
            self.assertEqual(history["history"][0]["by"], "alert-bot")
            self.stop(signal.SIGKILL)
            wait_until("it is unknown", lambda: self.board.state == "unknown")
            self.assertFalse(self.board.green.is_lit)
            self.start()
            wait_until("it is still acknowledged", lambda: self.board.state == "amber")
        finally:
            bot.stopping.set()
            thread.join(TIMEOUT_S)


if __name__ == "__main__":
    unittest.main()
