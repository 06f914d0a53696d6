package io.github.topdeck;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** A process across reuse of PIDs, namespaces and boots. What /proc does not provide is 0. */
record ProcessIdentity(
        long bootLow, long bootHigh, long pid, long pidNamespace, long startTicks) {

    static ProcessIdentity current() {
        long low = 0;
        long high = 0;
        String boot = read("/proc/sys/kernel/random/boot_id").replace("-", "").trim();
        if (boot.length() == 32) {
            high = Long.parseUnsignedLong(boot.substring(0, 16), 16);
            low = Long.parseUnsignedLong(boot.substring(16), 16);
        }
        long namespace = 0;
        try {
            namespace = (Long) Files.getAttribute(Path.of("/proc/self/ns/pid"), "unix:ino");
        } catch (IOException | UnsupportedOperationException error) {
            // Unknown.
        }
        long pid = ProcessHandle.current().pid();
        return new ProcessIdentity(low, high, pid, namespace, startTicks("self"));
    }

    /** Start time of a process, field 22 of its stat; 0 if it does not run, as a zombie. */
    static long startTicks(String process) {
        String stat = read("/proc/" + process + "/stat");
        // The name is in parentheses and may contain any characters.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 1).trim().split(" +");
        if (fields.length < 20 || fields[0].equals("Z") && fields[17].equals("1")) {
            return 0;
        }
        return Long.parseLong(fields[19]);
    }

    /** Id of this thread, as of gettid; 0 if unknown. */
    static long threadId() {
        try {
            Path link = Files.readSymbolicLink(Path.of("/proc/thread-self"));
            return Long.parseLong(link.getFileName().toString());
        } catch (IOException | NumberFormatException error) {
            return 0;
        }
    }

    /** The main class or the JAR file: all programs in Java have the executable {@code java}. */
    String program() {
        String main = System.getProperty("sun.java.command", "java").split(" ")[0];
        String file = main.substring(main.lastIndexOf('/') + 1);
        return file.endsWith(".jar") ? file : file.substring(file.lastIndexOf('.') + 1);
    }

    /** Command line, at most 4,096 bytes. */
    String command() {
        String text = read("/proc/self/cmdline").replace('\0', ' ').trim();
        while (Description.utf8(text).length > Layout.STRING_MAX) {
            text = text.substring(0, Math.min(text.length() - 1, Layout.STRING_MAX));
        }
        return text;
    }

    static String read(String path) {
        try {
            return new String(Files.readAllBytes(Path.of(path)), StandardCharsets.UTF_8);
        } catch (IOException error) {
            return "";
        }
    }
}
