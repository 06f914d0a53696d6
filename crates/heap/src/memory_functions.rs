//! `memcpy`, `memmove`, `memcmp` and `bcmp` for static x86-64 binaries.
//!
//! musl copies with string instructions, which cost tens of cycles for a few bytes, and compares
//! byte by byte: docs/dist.md has the measurements.
#![allow(unsafe_code, reason = "defines functions of the C library in assembly")]
#![cfg_attr(not(target_env = "musl"), allow(dead_code, reason = "glibc has its own; tests run"))]

use std::arch::naked_asm;

/// Copies `size` bytes and returns `to`; the ranges may overlap.
#[unsafe(naked)]
unsafe extern "C" fn copy(to: *mut u8, from: *const u8, size: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 2f",
        "cmp rdx, 32",
        "ja 3f",
        // 16 to 32 bytes.
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        "3:",
        "cmp rdx, 64",
        "ja 4f",
        // To 64 bytes.
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "ret",
        "4:",
        "cmp rdx, 128",
        "ja 5f",
        // To 128 bytes.
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups xmm4, [rsi + rdx - 64]",
        "movups xmm5, [rsi + rdx - 48]",
        "movups xmm6, [rsi + rdx - 32]",
        "movups xmm7, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "movups [rdi + rdx - 64], xmm4",
        "movups [rdi + rdx - 48], xmm5",
        "movups [rdi + rdx - 32], xmm6",
        "movups [rdi + rdx - 16], xmm7",
        "ret",
        // More. The distance of the destination is less than the size if it starts inside the
        // source.
        "5:",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jb 7f",
        "cmp rdx, 2048",
        "jb 6f",
        "neg rcx",
        "cmp rcx, rdx",
        "jb 6f",
        // Without overlap: string instructions for whole words; the last 8 bytes separately.
        "mov r8, [rsi + rdx - 8]",
        "lea r9, [rdi + rdx - 8]",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep movsq",
        "mov [r9], r8",
        "ret",
        // Forwards. The last 64 bytes are read first: the loop may overwrite them.
        "6:",
        "movups xmm4, [rsi + rdx - 64]",
        "movups xmm5, [rsi + rdx - 48]",
        "movups xmm6, [rsi + rdx - 32]",
        "movups xmm7, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 64]",
        "61:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "add rsi, 64",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rdi, 64",
        "cmp rdi, r8",
        "jb 61b",
        "movups [r8], xmm4",
        "movups [r8 + 16], xmm5",
        "movups [r8 + 32], xmm6",
        "movups [r8 + 48], xmm7",
        "ret",
        // Backwards. The first 64 bytes are read first.
        "7:",
        "movups xmm4, [rsi]",
        "movups xmm5, [rsi + 16]",
        "movups xmm6, [rsi + 32]",
        "movups xmm7, [rsi + 48]",
        "71:",
        "movups xmm0, [rsi + rdx - 64]",
        "movups xmm1, [rsi + rdx - 48]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi + rdx - 64], xmm0",
        "movups [rdi + rdx - 48], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "sub rdx, 64",
        "cmp rdx, 64",
        "ja 71b",
        "movups [rdi], xmm4",
        "movups [rdi + 16], xmm5",
        "movups [rdi + 32], xmm6",
        "movups [rdi + 48], xmm7",
        "ret",
        // Less than 16 bytes.
        "2:",
        "cmp edx, 8",
        "jb 22f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "22:",
        "cmp edx, 4",
        "jb 23f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "23:",
        "test edx, edx",
        "je 24f",
        // One to three bytes: the first, the middle and the last.
        "movzx ecx, byte ptr [rsi]",
        "movzx r8d, byte ptr [rsi + rdx - 1]",
        "mov r9, rdx",
        "shr r9, 1",
        "movzx r10d, byte ptr [rsi + r9]",
        "mov [rdi + r9], r10b",
        "mov [rdi], cl",
        "mov [rdi + rdx - 1], r8b",
        "24:",
        "ret",
    )
}

/// Compares bytes as memcmp(3) does.
#[unsafe(naked)]
unsafe extern "C" fn compare(a: *const u8, b: *const u8, size: usize) -> i32 {
    naked_asm!(
        "cmp rdx, 16",
        "jb 3f",
        // `rdx` becomes the offset of the last 16 bytes, `rcx` the current one.
        "sub rdx, 16",
        "xor ecx, ecx",
        "2:",
        "movdqu xmm0, [rdi + rcx]",
        "movdqu xmm1, [rsi + rcx]",
        "pcmpeqb xmm0, xmm1",
        "pmovmskb eax, xmm0",
        "sub eax, 0xffff",
        "jnz 25f",
        "add rcx, 16",
        "cmp rcx, rdx",
        "jb 2b",
        "mov rcx, rdx",
        "movdqu xmm0, [rdi + rcx]",
        "movdqu xmm1, [rsi + rcx]",
        "pcmpeqb xmm0, xmm1",
        "pmovmskb eax, xmm0",
        "sub eax, 0xffff",
        "jnz 25f",
        "ret",
        // A difference of `0xffff` and the mask has its lowest set bit at the first other byte.
        "25:",
        "bsf eax, eax",
        "add rcx, rax",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx edx, byte ptr [rsi + rcx]",
        "sub eax, edx",
        "ret",
        // Less than 16 bytes: as numbers, the first byte the most significant.
        "3:",
        "cmp edx, 8",
        "jb 32f",
        "mov rax, [rdi]",
        "mov rcx, [rsi]",
        "bswap rax",
        "bswap rcx",
        "cmp rax, rcx",
        "jne 35f",
        "mov rax, [rdi + rdx - 8]",
        "mov rcx, [rsi + rdx - 8]",
        "bswap rax",
        "bswap rcx",
        "cmp rax, rcx",
        "jne 35f",
        "xor eax, eax",
        "ret",
        "32:",
        "cmp edx, 4",
        "jb 33f",
        "mov eax, [rdi]",
        "mov ecx, [rsi]",
        "bswap eax",
        "bswap ecx",
        "cmp eax, ecx",
        "jne 35f",
        "mov eax, [rdi + rdx - 4]",
        "mov ecx, [rsi + rdx - 4]",
        "bswap eax",
        "bswap ecx",
        "cmp eax, ecx",
        "jne 35f",
        "33:",
        "xor ecx, ecx",
        "cmp edx, 4",
        "jae 37f",
        "34:",
        "cmp rcx, rdx",
        "jae 37f",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx r8d, byte ptr [rsi + rcx]",
        "inc rcx",
        "sub eax, r8d",
        "je 34b",
        "ret",
        "35:",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
        "37:",
        "xor eax, eax",
        "ret",
    )
}

/// Names of the C library. The linker takes a function from `libc.a` only if no object defines it.
#[cfg(target_env = "musl")]
mod symbols {
    use std::arch::naked_asm;

    macro_rules! symbols {
        ($($name:ident = $function:ident,)*) => {$(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!("jmp {}", sym super::$function)
            }
        )*};
    }
    symbols! { memcpy = copy, memmove = copy, memcmp = compare, bcmp = compare, }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around all limits of the branches.
    fn sizes() -> impl Iterator<Item = usize> {
        (0..=300).chain([511, 1024, 2047, 2048, 2049, 2055, 4096, 10_000])
    }

    #[test]
    fn copy_equals_copy_within_for_all_overlaps() {
        let source: Vec<u8> =
            (0..30_000).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for size in sizes() {
            for distance in
                [0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 2047, size / 2, size, size + 3]
            {
                for (from, to) in [(5, 5 + distance), (5 + distance, 5)] {
                    let mut expected = source.clone();
                    expected.copy_within(from..from + size, to);
                    let mut bytes = source.clone();
                    let base = bytes.as_mut_ptr();
                    // SAFETY: both ranges are within the vector.
                    let result = unsafe { copy(base.add(to), base.add(from), size) };
                    assert_eq!(result, base.wrapping_add(to));
                    assert!(bytes == expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn compare_equals_the_order_of_slices() {
        let bytes: Vec<u8> =
            (0..400).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for size in 0..=300 {
            let a = bytes[3..3 + size].to_vec();
            let check = |b: &[u8]| {
                // SAFETY: both slices have `size` bytes.
                let sign = unsafe { compare(a.as_ptr(), b.as_ptr(), size) }.signum();
                assert_eq!(sign, a.as_slice().cmp(b) as i32, "{size} bytes: {a:?} {b:?}");
            };
            check(&a.clone());
            for at in 0..size {
                for change in [1, 0x80, 0xff] {
                    let mut b = a.clone();
                    b[at] = b[at].wrapping_add(change);
                    // A later difference has no effect.
                    *b.last_mut().unwrap() ^= 0x55;
                    check(&b);
                }
            }
        }
    }
}
