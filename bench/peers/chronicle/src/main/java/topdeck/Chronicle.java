package topdeck;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

/**
 * Writes or reads a queue, as bench/src/journal/chronicle.rs runs it:
 *
 * <pre>Chronicle append|read JOURNAL MESSAGES SIZE</pre>
 *
 * MESSAGES is a file of messages of SIZE bytes each. A queue beside JOURNAL is written and read first, so that
 * the virtual machine has compiled what it runs. The figures are printed as one line: seconds passed, seconds of
 * processor time (the virtual machine tells it in steps of 10 ms), and -1 for the bytes, which the caller counts.
 */
public final class Chronicle {
    /** Divisor: this part of the messages warms up the writer. */
    private static final int WARM_UP_PART = 5;

    private Chronicle() {}

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0];
        Path journal = Path.of(arguments[1]);
        byte[] messages = Files.readAllBytes(Path.of(arguments[2]));
        int size = Integer.parseInt(arguments[3]);
        int count = messages.length / size;
        Path warm = journal.resolveSibling("warm-" + mode);
        switch (mode) {
            case "append":
                try (ChronicleQueue queue = open(warm)) {
                    append(queue, messages, size, count / WARM_UP_PART);
                }
                try (ChronicleQueue queue = open(journal)) {
                    Usage before = new Usage();
                    append(queue, messages, size, count);
                    before.print(new Usage());
                }
                break;
            case "read":
                boolean warmed = Files.exists(warm);
                try (ChronicleQueue queue = open(warm)) {
                    if (!warmed) {
                        append(queue, messages, size, count);
                    }
                    read(queue, count);
                }
                try (ChronicleQueue queue = open(journal)) {
                    Usage before = new Usage();
                    long found = read(queue, count);
                    Usage after = new Usage();
                    if (found != touch(messages, count * size)) {
                        throw new IllegalStateException("read other bytes than were written");
                    }
                    before.print(after);
                }
                break;
            default:
                throw new IllegalArgumentException(mode);
        }
        // Does not wait for its threads.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static ChronicleQueue open(Path dir) {
        return SingleChronicleQueueBuilder.binary(dir).build();
    }

    private static void append(ChronicleQueue queue, byte[] messages, int size, int count) {
        Bytes<?> all = Bytes.allocateElasticDirect(messages.length);
        all.write(messages);
        try (ExcerptAppender appender = queue.createAppender()) {
            for (long at = 0; at < (long) count * size; at += size) {
                all.readPositionRemaining(at, size);
                appender.writeBytes(all);
            }
        }
        all.releaseLast();
    }

    private static long read(ChronicleQueue queue, int count) {
        Bytes<?> message = Bytes.allocateElasticDirect(256);
        long all = 0;
        try (ExcerptTailer tailer = queue.createTailer()) {
            for (int number = 0; number < count; number++) {
                message.clear();
                if (!tailer.readBytes(message)) {
                    throw new IllegalStateException("nothing to read at message " + number);
                }
                while (message.readRemaining() >= Long.BYTES) {
                    all ^= message.readLong();
                }
                while (message.readRemaining() > 0) {
                    all ^= message.readUnsignedByte();
                }
            }
        }
        message.releaseLast();
        return fold(all);
    }

    /** XOR of all bytes. */
    private static long touch(byte[] messages, int length) {
        long all = 0;
        for (int at = 0; at < length; at++) {
            all ^= messages[at] & 0xff;
        }
        return all;
    }

    private static long fold(long words) {
        words ^= words >>> 32;
        words ^= words >>> 16;
        words ^= words >>> 8;
        return words & 0xff;
    }

    /** CPU time of this process. */
    private static final class Usage {
        private static final OperatingSystemMXBean SYSTEM =
                (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

        private final long time = System.nanoTime();
        private final long cpu = SYSTEM.getProcessCpuTime();

        void print(Usage after) {
            System.out.println(String.format(Locale.ROOT, "%.6f\t%.6f\t-1",
                    (after.time - time) / 1e9, (after.cpu - cpu) / 1e9));
        }
    }
}
