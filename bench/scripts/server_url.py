"""Address of a server that a script started."""

import re
import time

START_TIMEOUT_S = 60


def server_url(log):
    """Waits for the line of the log with the address."""
    for _ in range(START_TIMEOUT_S * 5):
        with open(log) as lines:
            found = re.search(r"HTTP and OTLP at (http://127\.0\.0\.1:\d+)", lines.read())
        if found:
            return found[1]
        time.sleep(0.2)
    raise TimeoutError("the server does not start")
