import io.github.topdeck.Topdeck;
import io.github.topdeck.micrometer.TopdeckMeterRegistry;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/** Records with Micrometer's API, and compares what topdeck reads, {@code TOPDECK_BIN}. */
public final class MicrometerTest {
    public static void main(String[] args) throws Exception {
        TopdeckMeterRegistry registry = new TopdeckMeterRegistry();
        var timer = registry.timer("http.server.requests", "uri", "/cart");
        timer.record(Duration.ofMillis(2));
        timer.record(Duration.ofMillis(4));
        var counter = registry.counter("orders.placed");
        counter.increment(2.5);
        counter.increment(0.5);
        registry.summary("order.size").record(7);
        AtomicInteger depth = new AtomicInteger(5);
        Gauge.builder("queue.depth", depth, AtomicInteger::get).register(registry);
        FunctionCounter.builder("cache.hits", depth, AtomicInteger::get).register(registry);
        registry.poll();
        depth.set(8);
        registry.poll();
        String program = System.getenv("TOPDECK_BIN");
        Process topdeck = new ProcessBuilder(program, "cat", Topdeck.path().toString()).start();
        byte[] output = topdeck.getInputStream().readAllBytes();
        String text = new String(output, StandardCharsets.UTF_8).replaceAll(" +", " ");
        for (String expected : new String[] {
            "http_server_requests{uri=\"/cart\"} 2 values",
            "max 4 ms",
            "orders_placed 3\n",
            "order_size 1 values",
            "queue_depth 8\n",
            "cache_hits 8\n",
        }) {
            if (!text.contains(expected)) {
                throw new AssertionError("not found: " + expected + " in\n" + text);
            }
        }
        if (timer.count() != 2 || counter.count() != 3) {
            throw new AssertionError("wrong counts: " + timer.count() + ", " + counter.count());
        }
        registry.close();
    }
}
