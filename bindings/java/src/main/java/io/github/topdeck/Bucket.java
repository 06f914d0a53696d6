package io.github.topdeck;

/** Buckets of the grid Exp2 of scale 5: 32 per octave, each with its upper edge. */
final class Bucket {
    private Bucket() {}

    /**
     * Bucket of a value above 0, unsigned; above 2^53 that of the nearest double.
     *
     * <p>The mantissa of the next smaller double is looked up in a table with an entry for each
     * 64th of an octave; the addition carries into the bucket.
     */
    static int of(long value) {
        long bits = Double.doubleToRawLongBits((double) value) - 1;
        long mantissa = bits & ((1L << 52) - 1);
        long carried = (mantissa + EDGES[(int) (mantissa >>> 46)]) >>> 52;
        return (int) (((bits >>> 52) << Layout.SCALE) + carried) - ((1023 << Layout.SCALE) - 1);
    }

    /** {@code (bucket + 1) * 2^52 - edge} for each 64th of an octave. */
    private static final long[] EDGES = {
        0x0000000000000000L, 0x000fa64f2cea7a8cL, 0x001f4aa7930676f1L, 0x0020000000000000L,
        0x002eecfe2feda4b0L, 0x003e8d47c382ae86L, 0x0040000000000000L, 0x004e2b78ce974656L,
        0x005dc785918a9dc8L, 0x0060000000000000L, 0x006d61620ae0211fL, 0x0070000000000000L,
        0x007cf901f5ce48ebL, 0x008c8e58c8c55636L, 0x0090000000000000L, 0x009c2159b3edcbdeL,
        0x00a0000000000000L, 0x00abb1f79f9e76d3L, 0x00bb40252ac9d5d9L, 0x00c0000000000000L,
        0x00cacbd4a962b07fL, 0x00d0000000000000L, 0x00da54f822b7abd7L, 0x00e0000000000000L,
        0x00e9db814fc5aa7cL, 0x00f0000000000000L, 0x00f95f619980c434L, 0x0100000000000000L,
        0x0108e08a1713a08dL, 0x0110000000000000L, 0x01185eeb8c14fe7aL, 0x0120000000000000L,
        0x0127da7666b331eeL, 0x0130000000000000L, 0x0137531abdd55f25L, 0x0140000000000000L,
        0x0146c8c84f323a1cL, 0x0150000000000000L, 0x0150000000000000L, 0x01563b6e7d5c0f70L,
        0x0160000000000000L, 0x0165aafc4dc1daa4L, 0x0170000000000000L, 0x0175176066a52c53L,
        0x0180000000000000L, 0x018480890d04a1baL, 0x0190000000000000L, 0x0190000000000000L,
        0x0193e664227aad64L, 0x01a0000000000000L, 0x01a348df23106f97L, 0x01b0000000000000L,
        0x01b0000000000000L, 0x01b2a7e723045b79L, 0x01c0000000000000L, 0x01c20368cc8464a2L,
        0x01d0000000000000L, 0x01d0000000000000L, 0x01d15b505d5b6f27L, 0x01e0000000000000L,
        0x01e0000000000000L, 0x01e0af89a491bac0L, 0x01f0000000000000L, 0x01f0000000000000L,
    };
}
