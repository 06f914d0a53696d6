//! Operations with a trace (W3C Trace Context), a few of which stand for those of a statement.
//!
//! The last operation of each magnitude (power of two) of the latency is kept, of the
//! [`MAGNITUDES_MAX`] highest ones: 40 bytes each.

use protocol::observer::{Operation, PacketTime};

/// Magnitudes of which an operation is kept: a factor of 256 below the longest one.
const MAGNITUDES_MAX: usize = 8;

/// An operation whose client sent `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedOperation {
    /// Id of the trace.
    pub trace_id: [u8; 16],
    /// Id of the client's span.
    pub span_id: [u8; 8],
    /// Last byte of the response.
    pub end: PacketTime,
    /// First byte of the request to last byte of the response, in nanoseconds.
    pub latency_ns: u64,
}

/// Operations of different magnitudes, in the order of their latencies.
#[derive(Clone, Debug, Default)]
pub struct TracedOperations(Vec<TracedOperation>);

impl TracedOperation {
    /// The operation, if it has a trace.
    fn new(operation: &Operation<'_>) -> Option<TracedOperation> {
        // Version, trace, span, flags: `00-<32 digits>-<16 digits>-01`.
        let mut parts = operation.traceparent?.split('-').skip(1);
        let (trace_id, span_id) = (parse_id(parts.next()?)?, parse_id(parts.next()?)?);
        let (start, end) = (operation.request_start, operation.response_end);
        (trace_id != [0; 16]).then_some(TracedOperation {
            trace_id,
            span_id,
            end,
            latency_ns: end.saturating_sub(start),
        })
    }

    /// Number of binary digits of the latency.
    fn magnitude(&self) -> u32 {
        u64::BITS - self.latency_ns.leading_zeros()
    }
}

impl TracedOperations {
    pub(crate) fn record(&mut self, operation: &Operation<'_>) {
        if let Some(traced) = TracedOperation::new(operation) {
            self.add(traced);
        }
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &TracedOperations) {
        other.iter().for_each(|traced| self.add(*traced));
    }

    /// The operations.
    pub fn iter(&self) -> impl Iterator<Item = &TracedOperation> {
        self.0.iter()
    }

    fn add(&mut self, traced: TracedOperation) {
        match self.0.binary_search_by_key(&traced.magnitude(), TracedOperation::magnitude) {
            Ok(at) if self.0[at].end > traced.end => {}
            Ok(at) => self.0[at] = traced,
            Err(0) if self.0.len() == MAGNITUDES_MAX => {}
            Err(mut at) => {
                if self.0.len() == MAGNITUDES_MAX {
                    self.0.remove(0);
                    at -= 1;
                }
                self.0.insert(at, traced);
            }
        }
    }
}

/// The bytes of hexadecimal digits; `None` if they are not as many.
fn parse_id<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    let mut id = [0; BYTES];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != BYTES || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(pairs) {
        let digit = |of: u8| char::from(of).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use protocol::observer::{OperationOutcome, StatementSyntax};

    use super::*;

    const PARENT: &str = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01";

    fn record(traced: &mut TracedOperations, end: u64, latency: u64, traceparent: Option<&str>) {
        traced.record(&Operation {
            verb: "Query",
            statement: "select 1",
            syntax: StatementSyntax::Sql,
            is_wait: false,
            outcome: OperationOutcome::Ok,
            request_start: end - latency,
            request_end: end,
            response_start: end,
            response_end: end,
            request_bytes: 1,
            response_bytes: 1,
            rows: None,
            traceparent,
        });
    }

    #[track_caller]
    fn check(traced: &TracedOperations, expected: &[(u64, u64)]) {
        let found: Vec<(u64, u64)> = traced.iter().map(|of| (of.end, of.latency_ns)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_last_operation_of_each_magnitude_is_kept() {
        let mut traced = TracedOperations::default();
        for (end, latency) in [(10_000, 100), (10_001, 3_000), (10_002, 120), (10_003, 2_900)] {
            record(&mut traced, end, latency, Some(PARENT));
        }
        record(&mut traced, 10_004, 3_100, None);
        check(&traced, &[(10_002, 120), (10_003, 2_900)]);
        let of = traced.iter().next().unwrap();
        assert_eq!(u128::from_be_bytes(of.trace_id), 0x5bd6_6ef5_0953_69c7_b0d1_f8f4_bd33_716a);
        assert_eq!(u64::from_be_bytes(of.span_id), 0xc532_cb40_98ac_3dd2);
        let mut later = TracedOperations::default();
        record(&mut later, 10_001, 101, Some(PARENT));
        record(&mut later, 10_009, 1, Some(PARENT));
        traced.merge(&later);
        check(&traced, &[(10_009, 1), (10_002, 120), (10_003, 2_900)]);
    }

    #[test]
    fn the_highest_magnitudes_are_kept() {
        let mut traced = TracedOperations::default();
        for magnitude in (0..12).chain([3]) {
            record(&mut traced, 10_000 + magnitude, 1 << magnitude, Some(PARENT));
        }
        let expected: Vec<(u64, u64)> = (4..12).map(|at| (10_000 + at, 1 << at)).collect();
        check(&traced, &expected);
    }

    #[test]
    fn what_is_no_trace_is_left_out() {
        let mut traced = TracedOperations::default();
        let zeros = "00-00000000000000000000000000000000-c532cb4098ac3dd2-01";
        for text in [zeros, "00-5bd6-c532cb4098ac3dd2-01", "", &PARENT[..40]] {
            record(&mut traced, 10_000, 1, Some(text));
        }
        check(&traced, &[]);
    }
}
