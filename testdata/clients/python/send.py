"""Sends known measurements to a topdeck by libraries that others wrote, and prints what it sent.

    send.py otlp URL                    OTLP over HTTP, protocol buffers
    send.py statsd HOST UDP-PORT TCP-PORT

The lines that it prints are those of ../go/main.go.
"""

import json
import os
import random
import sys
import time
from importlib.metadata import version


def latencies(seed, count):
    """Whole numbers of 1024ths: their sum in floating point is exact, in whatever order."""
    rng = random.Random(seed)
    return [(1 + int(rng.expovariate(1 / 200))) / 1024 for _ in range(count)]


def tell(client, what, ask, of, count, **more):
    print(json.dumps({"client": client, "what": what, "ask": ask, "of": of, "count": count, **more}))


def distribution(client, what, selector, values, unit):
    facts = {"unit": unit, "sum": sum(values), "min": min(values), "max": max(values)}
    tell(client, what, "distribution", selector, len(values), **facts)


def number(client, what, query, count, value):
    tell(client, what, "number", query, count, sum=value)


def otlp(url):
    """`url` is the endpoint of the environment: that of the defaults."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk import metrics
    from opentelemetry.sdk.metrics import export

    client = f"OpenTelemetry Python {version('opentelemetry-sdk')}"
    def exporter(temporality, compression):
        kinds = {metrics.Histogram: temporality, metrics.Counter: temporality}
        return OTLPMetricExporter(compression=compression, preferred_temporality=kinds)

    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
    of = export.AggregationTemporality
    ways = {
        "cumulative": exporter(of.CUMULATIVE, Compression.NoCompression),
        "delta": exporter(of.DELTA, Compression.Gzip),
        "defaults": OTLPMetricExporter(),
    }
    for name, exporter in ways.items():
        reader = export.PeriodicExportingMetricReader(exporter)
        provider = metrics.MeterProvider(metric_readers=[reader])
        meter = provider.get_meter("topdeck/clients")
        took = meter.create_histogram(f"python.took.{name}", unit="s")
        counter = meter.create_counter(f"python.counter.{name}")
        gauge = meter.create_gauge(f"python.gauge.{name}")
        values = latencies(11, 3_000)
        total = 0
        for i, value in enumerate(values):
            took.record(value, {"route": "/cart", "retried": False})
            counter.add(i % 7)
            total += i % 7
            gauge.set(value)
            if i % 1_000 == 999 and not provider.force_flush():
                sys.exit("an export failed")
        provider.shutdown()
        what = f"HTTP, {name}"
        distribution(client, f"{what} explicit", f'{{"python.took.{name}"}}', values, "s")
        number(client, f"{what} counter", f'exact_increase({{"python.counter.{name}"}}[1h])', 3_000, total)
        number(client, f"{what} gauge", f'{{"python.gauge.{name}"}}', 3_000, values[-1])
        if name != "delta":
            named = f"{what}, by its Prometheus name:"
            number(client, f"{named} histogram", f"python_took_{name}_seconds_count", 3_000, 3_000)
            number(client, f"{named} counter", f"python_counter_{name}_total", 3_000, total)
    traces(client)


def traces(client):
    """Spans of known durations; the endpoint is that of the environment."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "python-shop"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("topdeck/clients")
    # 1/64 ms is a whole number of nanoseconds.
    taken = [1 + int(value * 1024) for value in latencies(13, 3_000)]
    for i, value in enumerate(taken):
        start = time.time_ns() - 10_000_000_000
        name, kind = f"GET /cart/{i}", trace.SpanKind.SERVER
        span = tracer.start_span(name, kind=kind, start_time=start)
        span.end(end_time=start + value * 15_625)
        if i % 1_000 == 999 and not provider.force_flush():
            sys.exit("an export failed")
    provider.shutdown()
    labels = '"service.name"="python-shop","span.name"="GET /cart/{n}","span.kind"="SPAN_KIND_SERVER"'
    durations = [value / 64 for value in taken]
    distribution(client, "HTTP, spans", f'{{"traces.span.metrics.duration",{labels}}}', durations, "ms")
    calls = 'traces_span_metrics_calls_total{service_name="python-shop"}'
    number(client, "HTTP, number of spans", f"exact_increase({calls}[1h])", 3_000, 3_000)


def statsd(host, udp, tcp):
    from statsd import StatsClient, TCPStatsClient

    client = f"statsd (Python) {version('statsd')}"
    for way, to in [("UDP", StatsClient(host, int(udp))), ("TCP", TCPStatsClient(host, int(tcp)))]:
        values = [float(1 + int(value * 1024)) for value in latencies(12, 2_000)]
        total = 0
        # Few datagrams with many lines: over UDP the kernel drops what it has no room for.
        with to.pipeline() as lines:
            for i, value in enumerate(values):
                lines.timing(f"statsd.took.{way}", value)
                lines.incr(f"statsd.counter.{way}", i % 7)
                total += i % 7
        with to.pipeline() as lines:
            lines.gauge(f"statsd.gauge.{way}", 42.5)
            lines.gauge(f"statsd.gauge.{way}", -2, delta=True)
        # Milliseconds are stored in nanoseconds.
        stored = [value * 1e6 for value in values]
        distribution(client, f"{way} timing", f'{{"statsd.took.{way}"}}', stored, "ns")
        number(client, f"{way} counter", f'exact_increase({{"statsd.counter.{way}"}}[1h])', 2_000, total)
        number(client, f"{way} gauge", f'{{"statsd.gauge.{way}"}}', 2, 40.5)
        to.close()


if __name__ == "__main__":
    {"otlp": otlp, "statsd": statsd}[sys.argv[1]](*sys.argv[2:])
