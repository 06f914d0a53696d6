//! A block of packets in the ring of a packet socket (`TPACKET_V3`).
//!
//! ```text
//! block   version u32, private u32, status u32, packets u32, first packet u32, length u32, …
//! packet  next u32, seconds u32, nanoseconds u32, captured u32, original u32, status u32,
//!         link layer u16, network layer u16, …
//! ```
//!
//! Offsets are from the start of the block or of the packet; numbers are in the byte order of the
//! machine. Source: include/uapi/linux/if_packet.h of Linux.

use crate::capture_file::{CapturedPacket, LinkType};

/// Position of the status of a block.
pub(crate) const STATUS_OFFSET: usize = 8;
const PACKET_COUNT: usize = 12;
const FIRST_PACKET: usize = 16;

/// Calls `each` with the packets of a block, up to the first whose position is outside of it.
/// Returns whether all of them were inside.
pub(crate) fn read_packets(block: &[u8], each: &mut dyn FnMut(&CapturedPacket<'_>)) -> bool {
    let (Some(count), Some(first)) = (number(block, PACKET_COUNT), number(block, FIRST_PACKET))
    else {
        return false;
    };
    let mut offset = first as usize;
    for _ in 0..count {
        let Some((packet, next)) = block.get(offset..).and_then(read_packet) else { return false };
        each(&packet);
        // 0 is that of the last packet.
        offset = match offset.checked_add(next) {
            Some(next) => next,
            None => return false,
        };
    }
    true
}

/// A packet, and the distance to the next one.
fn read_packet(bytes: &[u8]) -> Option<(CapturedPacket<'_>, usize)> {
    let [next, seconds, nanoseconds, captured, original] =
        [0, 4, 8, 12, 16].map(|at| number(bytes, at));
    let (network, captured) = (number(bytes, 24)? >> network_shift(), captured?);
    let start = (network & 0xffff) as usize;
    let end = start.checked_add(captured as usize)?;
    let packet = CapturedPacket {
        time: Some(u64::from(seconds?) * 1_000_000_000 + u64::from(nanoseconds?)),
        link_type: LinkType::RawIp,
        bytes: bytes.get(start..end)?,
        original_bytes: original?.max(captured),
    };
    Some((packet, next? as usize))
}

/// The offset of the network layer is the second half of a word.
fn network_shift() -> u32 {
    if cfg!(target_endian = "little") { 16 } else { 0 }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|found| u32::from_ne_bytes(*found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with the payloads of packets, which start at 48.
    fn block(payloads: &[&[u8]]) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[PACKET_COUNT..][..4].copy_from_slice(&(payloads.len() as u32).to_ne_bytes());
        block[FIRST_PACKET..][..4].copy_from_slice(&48_u32.to_ne_bytes());
        for (at, payload) in payloads.iter().enumerate() {
            let size = payload.len() as u32;
            let next = if at + 1 == payloads.len() { 0 } else { 32 + size };
            for word in [next, 3, 7, size, size + 10, 1] {
                block.extend(word.to_ne_bytes());
            }
            block.extend([30_u16.to_ne_bytes(), 32_u16.to_ne_bytes(), [0; 2], [0; 2]].concat());
            block.extend(*payload);
        }
        block
    }

    #[track_caller]
    fn check(block: &[u8], is_whole: bool, expected: &[&[u8]]) {
        let mut found: Vec<Vec<u8>> = Vec::new();
        let all = read_packets(block, &mut |packet| {
            assert_eq!(packet.time, Some(3_000_000_007));
            assert_eq!(packet.original_bytes as usize, packet.bytes.len() + 10);
            found.push(packet.bytes.to_vec());
        });
        assert_eq!(all, is_whole);
        assert_eq!(found, expected);
    }

    #[test]
    fn packets_of_a_block() {
        check(&block(&[]), true, &[]);
        check(&block(&[b"abcd"]), true, &[b"abcd"]);
        check(&block(&[b"abcd", b"", b"efgh"]), true, &[b"abcd", b"", b"efgh"]);
    }

    #[test]
    fn packets_outside_of_a_block_are_not_read() {
        let whole = block(&[b"abcd", b"efgh"]);
        check(&whole[..whole.len() - 1], false, &[b"abcd"]);
        check(&whole[..40], false, &[]);
        check(&[], false, &[]);
        let mut endless = whole.clone();
        endless[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
        check(&endless, false, &[b"abcd"]);
    }
}
