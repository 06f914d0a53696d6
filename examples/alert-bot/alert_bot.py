#!/usr/bin/env python3
"""Shows the alerts of a topdeck on a small board: lamps, a buzzer, and a button that acknowledges.

    alert_bot.py --server https://topdeck.example:7717 --token-file token

The green lamp is lit only while topdeck has said so within the last seconds. Whatever fails — the
network, the server, the token — is shown as unknown. Needs Python 3.9 and gpiozero.
"""

import argparse
import json
import random
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

# Length of a long poll. A change is answered at once.
WAIT_S = 10
# Longest wait for an answer. A connection that says nothing is lost.
TIMEOUT_S = WAIT_S + 5
# An answer that is older is unknown: one long poll and its timeout.
AGE_MAX_S = WAIT_S + TIMEOUT_S
# Pauses after failures.
RETRY_MIN_S = 1
RETRY_MAX_S = 30
# An answer that is larger is an error.
ANSWER_BYTES_MAX = 64 << 20
COLORS = ("green", "amber", "red")
UNKNOWN = "unknown"


class Client:
    """HTTP client of a topdeck."""

    def __init__(self, server, token=None, ca=None, timeout_s=TIMEOUT_S):
        self.server = server.rstrip("/")
        self.token = token
        self.timeout_s = timeout_s
        handlers = [urllib.request.ProxyHandler({})]
        if self.server.startswith("https:"):
            context = ssl.create_default_context(cafile=ca)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self.opener = urllib.request.build_opener(*handlers)

    def request(self, path, body=None):
        """The JSON of an answer. Raises OSError or ValueError."""
        request = urllib.request.Request(self.server + path)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with self.opener.open(request, timeout=self.timeout_s) as answer:
            text = answer.read(ANSWER_BYTES_MAX + 1)
        if len(text) > ANSWER_BYTES_MAX:
            raise ValueError("the answer is too large")
        return json.loads(text)

    def alerts(self, revision, wait_s):
        """Active alerts, as soon as the revision is another one."""
        query = {} if revision is None else {"wait": wait_s, "since": revision}
        return self.request("/v1/alerts?" + urllib.parse.urlencode(query))

    def acknowledge(self, fingerprint, author, length):
        body = {"fingerprint": fingerprint, "for": length, "author": author}
        return self.request("/v1/alerts/acknowledge", body)


class Board:
    """Lamps, buzzer and button."""

    def __init__(self, red=17, green=27, buzzer=22, button=23):
        from gpiozero import LED, Button, Buzzer

        self.red = LED(red)
        self.green = LED(green)
        self.buzzer = Buzzer(buzzer)
        self.button = Button(button, bounce_time=0.05)
        self.state = None

    def show(self, state):
        """Shows a color or `unknown`. Lamps that blink are not restarted."""
        if state == self.state:
            return
        # Off first: at no time both a new state and the green lamp of the old one.
        self.green.off()
        if state == "green":
            self.red.off()
            self.green.on()
        elif state == "red":
            self.red.on()
        elif state == "amber":
            self.red.blink(on_time=1, off_time=1)
        else:
            self.red.blink(on_time=0.1, off_time=1.9)
        self.state = state

    def beep(self):
        self.buzzer.beep(on_time=0.2, off_time=0.8)

    def quiet(self):
        self.buzzer.off()

    def close(self):
        for device in (self.red, self.green, self.buzzer, self.button):
            device.close()


class Bot:
    """What the board shows, and what the button does."""

    def __init__(self, client, board, author="alert-bot", length="1h", clock=time.monotonic):
        self.client = client
        self.board = board
        self.author = author
        self.length = length
        self.clock = clock
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.answered_at = None
        self.revision = None
        # Fingerprints of the firing alerts that nobody has acknowledged or silenced.
        self.open = set()
        self.failures = 0
        board.show(UNKNOWN)
        board.button.when_pressed = self.press

    def poll(self, wait_s=WAIT_S):
        """Asks once. Returns whether there was an answer; otherwise the state is unknown."""
        try:
            answer = self.client.alerts(self.revision, wait_s)
            light, revision = answer["light"], answer["revision"]
            if light not in COLORS:
                raise ValueError(f"found the light {light!r}")
            fires = {
                alert["fingerprint"]
                for alert in answer["alerts"]
                if alert["state"] == "firing"
                and not alert["acknowledgement"]
                and not alert["silenced_by"]
            }
        except Exception as error:  # Whatever fails, the state is not known.
            self.fail(error)
            return False
        with self.lock:
            self.answered_at, self.revision, self.failures = self.clock(), revision, 0
            is_new = not fires <= self.open
            self.open = fires
            self.board.show(light)
            if light != "red":
                self.board.quiet()
            elif is_new:
                self.board.beep()
        return True

    def fail(self, error):
        with self.lock:
            self.failures += 1
            # The next answer is the state, not a change of an old one.
            self.answered_at, self.revision = None, None
            self.board.show(UNKNOWN)
        print(f"cannot read alerts: {error}", file=sys.stderr, flush=True)

    def check_age(self):
        """An answer that is too old says nothing, whatever the poll is waiting for."""
        with self.lock:
            if self.answered_at is not None and self.clock() - self.answered_at > AGE_MAX_S:
                self.board.show(UNKNOWN)

    def press(self):
        """Stops the buzzer, and acknowledges what fires."""
        with self.lock:
            self.board.quiet()
            wanted = sorted(self.open) if self.answered_at is not None else []
        for fingerprint in wanted:
            try:
                self.client.acknowledge(fingerprint, self.author, self.length)
            except urllib.error.HTTPError as error:
                # 404: it has resolved meanwhile.
                if error.code != 404:
                    print(f"cannot acknowledge {fingerprint}: {error}", file=sys.stderr)
            except (OSError, ValueError) as error:
                print(f"cannot acknowledge {fingerprint}: {error}", file=sys.stderr, flush=True)

    def pause_s(self):
        """Pause after a failure: doubled each time, and no two boards at once."""
        longest = min(RETRY_MAX_S, RETRY_MIN_S * 2 ** min(self.failures - 1, 10))
        return longest * random.uniform(0.5, 1)

    def run(self):
        """Until stopped."""
        watch = threading.Thread(target=self.watch, daemon=True)
        watch.start()
        try:
            while not self.stopping.is_set():
                if not self.poll():
                    self.stopping.wait(self.pause_s())
        finally:
            self.stopping.set()
            watch.join()
            self.board.show(UNKNOWN)
            self.board.quiet()

    def watch(self):
        while not self.stopping.wait(1):
            self.check_age()


def read_token(path):
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="http://127.0.0.1:7717", help="URL of topdeck")
    parser.add_argument("--token-file", help="file with a token of the scopes read and alerts")
    parser.add_argument("--ca", help="CA certificate (PEM); default: those of the system")
    parser.add_argument("--author", default="alert-bot", help="who acknowledges")
    parser.add_argument("--for", dest="length", default="1h", help="length of acknowledgements")
    for name, pin in (("red", 17), ("green", 27), ("buzzer", 22), ("button", 23)):
        parser.add_argument(f"--{name}", type=int, default=pin, help=f"GPIO; default: {pin}")
    options = parser.parse_args()
    client = Client(options.server, read_token(options.token_file), options.ca)
    board = Board(options.red, options.green, options.buzzer, options.button)
    bot = Bot(client, board, options.author, options.length)
    try:
        bot.run()
    except KeyboardInterrupt:
        pass
    finally:
        board.close()


if __name__ == "__main__":
    main()
