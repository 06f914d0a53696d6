package io.github.topdeck;

import static io.github.topdeck.Layout.*;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/**
 * The metrics file of this process: created under a temporary name, and renamed when it is
 * readable.
 * Space is written with zeros before it is accessed, so that the file system has it.
 */
final class MetricsFile {
    private static final byte[] ZEROS = new byte[PAGE];

    private volatile Path path;
    /** Not a channel: an interrupt of a thread would close that. */
    private final RandomAccessFile file;

    private final Memory head;
    private final Lane[] lanes = new Lane[LANES_MAX];
    private final Registry registry = new Registry(this);
    private int lanesUsed;
    /** Ends of the reserved parts of registry and strings. */
    private int registryReserved = REGISTRY;

    private int stringsReserved = STRINGS;

    private MetricsFile(Path path) throws IOException {
        this.path = path;
        file = new RandomAccessFile(path.toFile(), "rw");
        file.setLength(LANES);
        writeZeros(0, REGISTRY);
        head = new Memory(map(0, LANES));
    }

    static MetricsFile create() throws MetricException {
        try {
            Path dir = MetricsDir.open();
            ExpiredFiles.remove(dir);
            ProcessIdentity own = ProcessIdentity.current();
            long created = System.nanoTime();
            String name = own.pid() + "-" + Long.toHexString(created) + ".tdk";
            Path temporary = dir.resolve("." + name);
            var mode = PosixFilePermissions.fromString("rw-r-----");
            var options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            Files.newByteChannel(temporary, options, PosixFilePermissions.asFileAttribute(mode))
                    .close();
            MetricsFile made = null;
            try {
                made = new MetricsFile(temporary);
                made.describe(own, created);
                made.path = dir.resolve(name);
                Files.move(temporary, made.path, StandardCopyOption.ATOMIC_MOVE);
                return made;
            } finally {
                // An incomplete file is useless and may have filled the file system.
                if (Files.deleteIfExists(temporary) && made != null) {
                    made.file.close();
                }
            }
        } catch (IOException error) {
            throw new MetricException("cannot create the metrics file", error);
        }
    }

    private void describe(ProcessIdentity own, long created) throws IOException {
        ByteBuffer id = ByteBuffer.allocate(16);
        try (RandomAccessFile random = new RandomAccessFile("/dev/urandom", "r")) {
            random.readFully(id.array());
        }
        var now = java.time.Instant.now();
        Map<Integer, Long> words = Map.ofEntries(
                Map.entry(0, MAGIC),
                Map.entry(8, VERSION),
                Map.entry(ID, id.getLong(0)),
                Map.entry(ID + 8, id.getLong(8)),
                Map.entry(BOOT, own.bootLow()),
                Map.entry(BOOT + 8, own.bootHigh()),
                Map.entry(PID, own.pid()),
                Map.entry(PID_NAMESPACE, own.pidNamespace()),
                Map.entry(START_TICKS, own.startTicks()),
                Map.entry(UID, (long) MetricsDir.uid()),
                Map.entry(CREATED, created),
                Map.entry(CREATED_UNIX, now.getEpochSecond() * 1_000_000_000 + now.getNano()),
                Map.entry(128, (long) REGISTRY),
                Map.entry(136, (long) ENTRIES_MAX),
                Map.entry(152, (long) STRINGS),
                Map.entry(160, (long) STRINGS_BYTES),
                Map.entry(176, (long) LANES),
                Map.entry(184, (long) LANE_STRIDE),
                Map.entry(192, (long) LANES_MAX),
                Map.entry(208, (long) SMALL_BYTES));
        words.forEach(head::store);
        openLane(0);
        head.store(PROGRAM, registry.intern(Description.utf8(own.program())));
        head.store(COMMAND, registry.intern(Description.utf8(own.command())));
        head.store(STATE, STATE_LIVE);
    }

    Path path() {
        return path;
    }

    Memory head() {
        return head;
    }

    /** Cells of a series, which is added if it is new. */
    synchronized Cells register(Description series, Kind kind) throws MetricException {
        try {
            return registry.findOrAdd(series, kind);
        } catch (IOException error) {
            throw noSpace(error);
        }
    }

    /** Position of a text; 0 without space. */
    synchronized int intern(byte[] text) {
        try {
            return (int) registry.intern(text);
        } catch (IOException error) {
            return 0;
        }
    }

    private MetricException noSpace(IOException error) {
        return new MetricException("cannot reserve space in " + path, error);
    }

    /** A free lane for this thread, or null if there is none. */
    synchronized Lane takeLane() throws IOException {
        for (int number = 1; number < LANES_MAX; number++) {
            if (lanes[number] == null || lanes[number].isFree()) {
                Lane lane = openLane(number);
                reserveSmall(lane, registry.smallUsed());
                lane.take();
                head.store(HEADER_BYTES + number * LANE_BYTES + 8, ProcessIdentity.threadId());
                return lane;
            }
        }
        head.add(SHARED_LANE_THREADS, 1);
        return null;
    }

    /** Makes the small cells of all registered metrics usable. */
    synchronized void extendLane(Lane lane) throws IOException {
        reserveSmall(lane, registry.smallUsed());
    }

    synchronized Lane sharedLane() {
        return lanes[0];
    }

    private Lane openLane(int number) throws IOException {
        if (lanes[number] == null) {
            long offset = LANES + (long) number * LANE_STRIDE;
            if (number >= lanesUsed) {
                file.setLength(offset + LANE_STRIDE);
            }
            lanes[number] = new Lane(number, new Memory(map(offset, LANE_STRIDE)));
            lanesUsed = Math.max(lanesUsed, number + 1);
            head.store(LANES_USED, lanesUsed);
        }
        return lanes[number];
    }

    void reserveSmall(Lane lane, int end) throws IOException {
        int reserved = (end + PAGE - 1) & -PAGE;
        if (reserved > lane.end) {
            reservePages(lane, lane.end, reserved);
            head.store(HEADER_BYTES + lane.number * LANE_BYTES, reserved);
            lane.end = reserved;
        }
    }

    /** Reserves large cells; runs {@code done} if there was space, else counts a lost value. */
    synchronized boolean reserveLarge(Lane lane, int offset, int bytes, Runnable done) {
        try {
            reservePages(lane, offset & -PAGE, (offset + bytes + PAGE - 1) & -PAGE);
        } catch (IOException error) {
            head.add(LOST_VALUES, 1);
            return false;
        }
        done.run();
        return true;
    }

    private void reservePages(Lane lane, int start, int end) throws IOException {
        for (int at = start; at < Math.min(end, LANE_STRIDE); at += PAGE) {
            // A page with space may have counts.
            if (!lane.pages.get(at / PAGE)) {
                writeZeros(LANES + (long) lane.number * LANE_STRIDE + at, PAGE);
                lane.pages.set(at / PAGE);
            }
        }
    }

    /** Reserves space for entries up to an offset. */
    void reserveEntries(int end) throws IOException {
        registryReserved = reserveUpTo(registryReserved, end);
    }

    /** Reserves space for strings up to an offset. */
    void reserveStrings(int end) throws IOException {
        stringsReserved = reserveUpTo(stringsReserved, end);
    }

    private int reserveUpTo(int reserved, int end) throws IOException {
        int step = 4 * PAGE;
        for (; reserved < end; reserved += step) {
            writeZeros(reserved, step);
        }
        return reserved;
    }

    private void writeZeros(long offset, int bytes) throws IOException {
        file.seek(offset);
        for (int rest = bytes; rest > 0; rest -= PAGE) {
            file.write(ZEROS, 0, Math.min(rest, PAGE));
        }
    }

    /**
     * Maps a part of the file. An interrupt of this thread would close the channel: it is delivered
     * afterwards.
     */
    private ByteBuffer map(long offset, int bytes) throws IOException {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                var options = EnumSet.of(StandardOpenOption.READ, StandardOpenOption.WRITE);
                try (FileChannel channel = FileChannel.open(path, options)) {
                    ByteBuffer mapped =
                            channel.map(FileChannel.MapMode.READ_WRITE, offset, bytes);
                    return mapped.order(ByteOrder.nativeOrder());
                } catch (ClosedByInterruptException error) {
                    interrupted = true;
                    Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    void markExited() {
        head.store(ENDED, System.nanoTime());
        head.store(STATE, STATE_EXITED);
    }
}
