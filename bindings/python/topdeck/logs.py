"""Time that logging takes: a handler around another handler of the module logging.

    handler = topdeck.logs.TimedHandler(logging.FileHandler("app.log"))
"""

import logging

from . import Histogram, Role


class TimedHandler(logging.Handler):
    """Records how long the other handler takes per record, by its level."""

    def __init__(self, handler, name="log_write_duration"):
        super().__init__(handler.level)
        self._handler, self._name, self._durations = handler, name, {}

    def handle(self, record):
        """Calls the other handler, which filters and locks."""
        histogram = self._durations.get(record.levelname)
        if histogram is None:
            histogram = self._durations[record.levelname] = Histogram(
                self._name,
                unit="ns",
                help="Time to write a log record.",
                labels={"level": record.levelname},
                role=Role.TIMING,
            )
        with histogram.start():
            return self._handler.handle(record)

    def flush(self):
        self._handler.flush()

    def close(self):
        self._handler.close()
        super().close()
