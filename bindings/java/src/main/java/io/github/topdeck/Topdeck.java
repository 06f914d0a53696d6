package io.github.topdeck;

import java.io.IOException;
import java.nio.file.Path;

/** The metrics file of this process, and the lane of each thread. */
public final class Topdeck {
    private Topdeck() {}

    /** After a failure the next attempt to create the file follows ten seconds later. */
    private static final long RETRY_AFTER_NS = 10_000_000_000L;

    /** While the file system is full, a lane is requested once a second, not by each record. */
    private static final long FULL_FOR_NS = 1_000_000_000L;

    private static volatile MetricsFile file;
    private static MetricException failure;
    private static long retryAtNs;
    private static volatile long fullUntilNs;

    /** Lane 0, which all threads write with atomic instructions, and the end of its small cells. */
    private static volatile Lane shared;

    private static volatile int sharedEnd;

    /** Lanes without cells: the thread has none yet; or it found none free and shares lane 0. */
    private static final Lane NOWHERE = new Lane(-1, null);

    private static final Lane SHARING = new Lane(-1, null);

    private static final ThreadLocal<Lane> LANE = ThreadLocal.withInitial(() -> NOWHERE);

    /** Path of the metrics file, which is created if there is none. */
    public static Path path() throws MetricException {
        return file().path();
    }

    /**
     * Interns the value of a tag of operations in flight. Each distinct text takes space in the
     * file for good: use it for a device or a route, not for a request id. Without a file, and
     * without space, it is 0, which has no text.
     */
    public static int tag(String text) {
        try {
            byte[] bytes = Description.utf8(text);
            return bytes.length > Layout.STRING_MAX ? 0 : file().intern(bytes);
        } catch (MetricException error) {
            return 0;
        }
    }

    static MetricsFile file() throws MetricException {
        MetricsFile found = file;
        return found != null ? found : create();
    }

    private static synchronized MetricsFile create() throws MetricException {
        if (file == null) {
            if (failure != null && System.nanoTime() - retryAtNs < 0) {
                throw failure;
            }
            try {
                MetricsFile made = MetricsFile.create();
                shared = made.sharedLane();
                Runtime.getRuntime().addShutdownHook(
                        new Thread(made::markExited, "topdeck-exit"));
                file = made;
            } catch (MetricException error) {
                failure = error;
                retryAtNs = System.nanoTime() + RETRY_AFTER_NS;
                throw error;
            } catch (IllegalStateException error) {
                throw new MetricException("the process is shutting down", error);
            }
        }
        return file;
    }

    /** Makes space for small cells of lane 0; the caller has the lock of the file. */
    static void extendShared(MetricsFile of, int end) throws IOException {
        Lane lane = of.sharedLane();
        of.reserveSmall(lane, end);
        // A thread that sees the end sees the lane.
        shared = lane;
        sharedEnd = lane.end;
    }

    /** The lane of this thread; its end tells whether cells are usable. */
    static Lane lane() {
        return LANE.get();
    }

    /** The lane of this thread with usable cells at an offset, or null: use the shared lane. */
    static Lane prepareLane(int small) {
        MetricsFile of = file;
        if (of == null || small >= Layout.SMALL_BYTES || isFull()) {
            return null;
        }
        Lane lane = LANE.get();
        try {
            if (lane == SHARING) {
                return null;
            }
            if (lane != NOWHERE) {
                of.extendLane(lane);
            } else {
                boolean isVirtual = VirtualThreads.isVirtual(Thread.currentThread());
                Lane taken = isVirtual ? null : of.takeLane();
                lane = taken == null ? SHARING : taken;
                LANE.set(lane);
            }
        } catch (IOException error) {
            fullUntilNs = System.nanoTime() + FULL_FOR_NS;
            return null;
        }
        return small < lane.end ? lane : null;
    }

    private static boolean isFull() {
        long until = fullUntilNs;
        return until != 0 && System.nanoTime() - until < 0;
    }

    /** Lane 0 if it has cells at an offset, or null. */
    static Lane sharedLane(int small) {
        return small < sharedEnd ? shared : null;
    }

    /** Lane 0 for a counter: tells readers that it has counts. */
    static Lane sharedLaneForCounts(int small) {
        Lane lane = sharedLane(small);
        if (lane != null) {
            file.head().store(Layout.HEADER_BYTES + 16, 1);
        }
        return lane;
    }
}
