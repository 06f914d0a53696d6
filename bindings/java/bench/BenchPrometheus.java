import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.core.metrics.Histogram;

/** Prometheus' client: a counter, a classic and a native histogram. */
public final class BenchPrometheus {
    public static void run() throws Throwable {
        Counter counter = Counter.builder().name("bench_total").build();
        Bench.measure("prometheus counter", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                counter.inc();
            }
        });
        Histogram classic = Histogram.builder().name("bench_classic").classicOnly().build();
        Bench.measure("prometheus classic histogram", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                classic.observe(values[i & 1023] / 1e9);
            }
        });
        Histogram nativeOnly = Histogram.builder().name("bench_native").nativeOnly().build();
        Bench.measure("prometheus native histogram", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                nativeOnly.observe(values[i & 1023] / 1e9);
            }
        });
    }
}
