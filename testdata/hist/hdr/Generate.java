// Writes java.tsv. Columns and how it was run: README.md.
//   javac -cp HdrHistogram-2.2.2.jar Generate.java && java -cp HdrHistogram-2.2.2.jar:. Generate > java.tsv

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import org.HdrHistogram.DoubleHistogram;
import org.HdrHistogram.Histogram;

public class Generate {
    static final long HOUR_NS = 3_600_000_000_000L;

    public static void main(String[] args) {
        line("double-empty", new DoubleHistogram(3));
        line("double-shifted-down", doubles(new DoubleHistogram(1_000_000, 3), 1.0, 0.0, 0.001, .5, .5, .5, .5, .5, .5, .5, 3.75));
        line("double-nano", doubles(new DoubleHistogram(1_000_000, 2), 1e-9, 2e-9, 5e-4));
        line("double-resized", doubles(new DoubleHistogram(3), 100.0, 1e9, 1e-3, 0.0));
        line("double-5", doubles(new DoubleHistogram(1 << 20, 5), 12345.678, 0.25, 0.0));
        line("double-0", doubles(new DoubleHistogram(100, 0), 3.0, 70.0));
        DoubleHistogram reset = doubles(new DoubleHistogram(1_000_000, 3), 1.0, 1000.0, 0.01);
        reset.reset();
        line("double-reset", doubles(reset, 5.0));

        for (int digits = 0; digits <= 5; digits++) {
            Histogram all = new Histogram(1, HOUR_NS, digits);
            for (long value = 1; value < HOUR_NS; value = value * 3 + 1) {
                all.recordValue(value);
            }
            all.recordValueWithCount(0, 3);
            all.recordValueWithCount(17, 1L << 60);
            line("integers-" + digits, all);
        }
        line("lowest-1000", integers(new Histogram(1000, HOUR_NS, 3), 999, 123_456_789));
        line("empty", new Histogram(3));
        line("resized", integers(new Histogram(3), 100, 1L << 61));
        Histogram left = integers(new Histogram(1, 1L << 40, 3), 100_000, 300_000, 0);
        left.shiftValuesLeft(3);
        line("shifted-left", left);
        Histogram right = integers(new Histogram(1, 1L << 40, 3), 1 << 20, 3 << 20, 0);
        right.shiftValuesRight(4);
        line("shifted-right", right);
    }

    static DoubleHistogram doubles(DoubleHistogram histogram, double... values) {
        for (double value : values) histogram.recordValue(value);
        return histogram;
    }

    static Histogram integers(Histogram histogram, long... values) {
        for (long value : values) histogram.recordValue(value);
        return histogram;
    }

    static void line(String name, DoubleHistogram h) {
        ByteBuffer plain = ByteBuffer.allocate(h.getNeededByteBufferCapacity() + 200);
        ByteBuffer compressed = ByteBuffer.allocate(h.getNeededByteBufferCapacity() + 200);
        int len = h.encodeIntoByteBuffer(plain);
        int compressedLen = h.encodeIntoCompressedByteBuffer(compressed);
        print(name, h.getTotalCount(), h.getMinNonZeroValue(), h.getMaxValue(), h.getValueAtPercentile(50),
                h.getValueAtPercentile(0), h.getCountAtValue(0), base64(plain, len), base64(compressed, compressedLen));
    }

    static void line(String name, Histogram h) {
        ByteBuffer plain = ByteBuffer.allocate(h.getNeededByteBufferCapacity() + 200);
        ByteBuffer compressed = ByteBuffer.allocate(h.getNeededByteBufferCapacity() + 200);
        int len = h.encodeIntoByteBuffer(plain);
        int compressedLen = h.encodeIntoCompressedByteBuffer(compressed);
        print(name, h.getTotalCount(), (double) h.getMinNonZeroValue(), (double) h.getMaxValue(),
                (double) h.getValueAtPercentile(50), (double) h.getValueAtPercentile(0), h.getCountAtValue(0),
                base64(plain, len), base64(compressed, compressedLen));
    }

    static String base64(ByteBuffer buffer, int len) {
        return Base64.getEncoder().encodeToString(Arrays.copyOf(buffer.array(), len));
    }

    static void print(Object... columns) {
        System.out.println(String.join("\t", Arrays.stream(columns).map(Object::toString).toArray(String[]::new)));
    }
}
