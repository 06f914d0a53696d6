/** HdrHistogram: the single-threaded histogram, and the recorder for many threads. */
public final class BenchHdr {
    public static void run() throws Throwable {
        var histogram = new org.HdrHistogram.Histogram(3);
        Bench.measure("HdrHistogram recordValue", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                histogram.recordValue(values[i & 1023]);
            }
        });
        var recorder = new org.HdrHistogram.Recorder(3);
        Bench.measure("HdrHistogram Recorder", (values, calls) -> {
            for (int i = 0; i < calls; i++) {
                recorder.recordValue(values[i & 1023]);
            }
        });
    }
}
