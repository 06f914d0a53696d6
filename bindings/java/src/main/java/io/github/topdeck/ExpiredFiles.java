package io.github.topdeck;

import static io.github.topdeck.Layout.*;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** Removes files of processes that have ended. */
final class ExpiredFiles {
    private ExpiredFiles() {}

    /** Long enough for a collector that scrapes each second. */
    private static final Duration AFTER_EXIT = Duration.ofMinutes(1);

    private static final Duration AFTER_CRASH = Duration.ofDays(1);
    private static final int FILES_MAX = 64;
    private static final long BYTES_MAX = 64 << 20;
    /** Creating a file takes less time than this. */
    private static final Duration UNFINISHED = Duration.ofMinutes(1);

    private record Ended(Path path, long since, boolean hasExited, long bytes) {}

    static void remove(Path dir) {
        ProcessIdentity own = ProcessIdentity.current();
        // If /proc does not show this process, no process is known to have ended.
        if (dir.startsWith("/proc") || own.startTicks() == 0 || own.bootHigh() == 0) {
            return;
        }
        List<Ended> ended = new ArrayList<>();
        try (var paths = Files.newDirectoryStream(dir, "*.tdk")) {
            for (Path path : paths) {
                if (path.getFileName().toString().startsWith(".")) {
                    long modified = Files.getLastModifiedTime(path).toMillis();
                    if (System.currentTimeMillis() - modified > UNFINISHED.toMillis()) {
                        Files.deleteIfExists(path);
                    }
                } else {
                    read(path, own, ended);
                }
            }
        } catch (IOException error) {
            // What cannot be read stays.
        }
        ended.sort(Comparator.comparing(Ended::since, Long::compareUnsigned).reversed());
        int files = 0;
        long bytes = 0;
        for (Ended one : ended) {
            long age = System.nanoTime() - one.since;
            long limit = (one.hasExited ? AFTER_EXIT : AFTER_CRASH).toNanos();
            if (age > limit || files >= FILES_MAX || bytes + one.bytes > BYTES_MAX) {
                try {
                    Files.deleteIfExists(one.path);
                } catch (IOException error) {
                    // It stays.
                }
                continue;
            }
            files++;
            bytes += one.bytes;
        }
    }

    /**
     * Adds the file if its process has ended. The time of a crash is written to the file, which has
     * no other writer any more.
     */
    private static void read(Path path, ProcessIdentity own, List<Ended> ended) {
        if (!Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
            return;
        }
        // Not a FileChannel, which a thread that is interrupted cannot use.
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "r")) {
            ByteBuffer header = ByteBuffer.allocate(HEADER_USED).order(ByteOrder.nativeOrder());
            file.readFully(header.array());
            if (header.getLong(0) != MAGIC
                    || header.getLong(8) != VERSION
                    || header.getLong(BOOT) != own.bootLow()
                    || header.getLong(BOOT + 8) != own.bootHigh()
                    || header.getLong(PID_NAMESPACE) != own.pidNamespace()) {
                return;
            }
            long state = header.getLong(STATE);
            boolean hasExited = state == STATE_EXITED || state == STATE_REPLACED;
            if (!hasExited && !hasEnded(header.getLong(PID), header.getLong(START_TICKS))) {
                return;
            }
            long since = header.getLong(ENDED);
            if (since == 0 && state != STATE_EXITED) {
                since = System.nanoTime();
                writeEnded(path, since);
            }
            ended.add(new Ended(path, since, hasExited, usedBytes(file, header)));
        } catch (IOException error) {
            // Not readable, or shorter than a header.
        }
    }

    private static void writeEnded(Path path, long since) throws IOException {
        ByteBuffer word = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            // Another process has removed the file meanwhile, and this has created it again.
            if (file.length() == 0) {
                Files.deleteIfExists(path);
                return;
            }
            file.seek(ENDED);
            file.write(word.putLong(0, since).array());
        }
    }

    /** Memory of the file without buckets and slots: Java does not tell its allocated size. */
    private static long usedBytes(RandomAccessFile file, ByteBuffer header) throws IOException {
        long entries = Math.min(header.getLong(REGISTRY_COUNT) & Long.MAX_VALUE, ENTRIES_MAX);
        long strings = Math.min(header.getLong(STRINGS_USED) & Long.MAX_VALUE, STRINGS_BYTES);
        long bytes = REGISTRY + entries * ENTRY_BYTES + strings;
        ByteBuffer lanes = ByteBuffer.allocate(LANES_MAX * LANE_BYTES);
        file.seek(HEADER_BYTES);
        file.readFully(lanes.order(ByteOrder.nativeOrder()).array());
        for (int lane = 0; lane < LANES_MAX; lane++) {
            bytes += Math.min(lanes.getLong(lane * LANE_BYTES) & Long.MAX_VALUE, SMALL_BYTES);
        }
        return bytes;
    }

    private static boolean hasEnded(long pid, long ticks) {
        if (!Files.exists(Path.of("/proc/" + pid))) {
            return true;
        }
        long found = ProcessIdentity.startTicks(Long.toString(pid));
        if (found == ticks) {
            return false;
        }
        try {
            // Start times are relative to the boot time of the time namespace.
            Path other = Files.readSymbolicLink(Path.of("/proc/" + pid + "/ns/time"));
            return other.equals(Files.readSymbolicLink(Path.of("/proc/self/ns/time")));
        } catch (IOException error) {
            return found == 0;
        }
    }
}
