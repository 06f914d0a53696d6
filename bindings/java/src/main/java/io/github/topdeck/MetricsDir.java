package io.github.topdeck;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/** Directory of the metrics files of this user: on tmpfs, not writable by others. */
final class MetricsDir {
    private MetricsDir() {}

    static Path open() throws MetricException, IOException {
        int uid = uid();
        Path path = choose(uid);
        try {
            var mode = PosixFilePermissions.fromString("rwxr-xr-x");
            Files.createDirectory(path, PosixFilePermissions.asFileAttribute(mode));
        } catch (FileAlreadyExistsException error) {
            // Checked below.
        }
        var found = Files.readAttributes(path, "unix:uid,mode,isDirectory",
                LinkOption.NOFOLLOW_LINKS);
        int mode = (Integer) found.get("mode");
        boolean isOpen = (mode & 0022) != 0 && (mode & 01000) == 0;
        if (!(Boolean) found.get("isDirectory") || !found.get("uid").equals(uid) || isOpen) {
            throw new MetricException(String.format("cannot use %s: owner %s, mode %o, expected"
                    + " owner %d and no write access for others; remove it or set TOPDECK_SHM",
                    path, found.get("uid"), mode & 07777, uid));
        }
        if (!Files.getFileStore(path).type().equals("tmpfs")) {
            throw new MetricException("cannot use " + path + ": not on tmpfs, metrics could block"
                    + " on a disk; set TOPDECK_SHM to a directory on tmpfs");
        }
        return path;
    }

    private static Path choose(int uid) throws MetricException {
        String named = System.getenv("TOPDECK_SHM");
        if ("off".equals(named)) {
            throw new MetricException(
                    "shared-memory metrics are disabled (TOPDECK_SHM=off)");
        }
        if (named != null && !named.isEmpty()) {
            return Path.of(named);
        }
        Path prepared = Path.of("/run/topdeck/" + uid);
        try {
            var found = Files.readAttributes(prepared, "unix:uid,isDirectory",
                    LinkOption.NOFOLLOW_LINKS);
            if ((Boolean) found.get("isDirectory") && found.get("uid").equals(uid)) {
                return prepared;
            }
        } catch (IOException error) {
            // It does not exist.
        }
        return Path.of("/dev/shm/topdeck-" + uid);
    }

    /** Effective user id of this process. */
    static int uid() {
        for (String line : ProcessIdentity.read("/proc/self/status").split("\n")) {
            if (line.startsWith("Uid:")) {
                return Integer.parseInt(line.split("\\s+")[2]);
            }
        }
        return -1;
    }
}
