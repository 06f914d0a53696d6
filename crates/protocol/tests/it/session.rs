//! Sessions: packets of a connection, and what an observer must find in them.
//!
//! [`Session::check`] compares the observer's transcript with the expected one, which is written by
//! hand from the protocol's document. It then feeds the same packets in other ways, in which an
//! observer must find the same (packets in pieces), or nothing that is not in the transcript (a
//! capture that starts in the middle, gaps).
//!
//! The time of a packet is its number in the session, from 1.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use expect_test::Expect;
use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObserverState, Operation,
    OperationOutcome, OperationSink,
};

use crate::checks::observer_checks::{GAP, MEMORY_MAX, TO_CLIENT, protocol};

/// Repetitions of the repeatable packets after a gap. The observer must have found a position to
/// continue before the last one.
const REPETITIONS: usize = 8;
/// Positions at which a session is cut, at most.
const CUTS_MAX: usize = 150;
/// Captures of each session with many missing packets.
const LOSS_ROUNDS: usize = 40;

/// Packets of a connection between other programs.
#[derive(Clone)]
pub(crate) struct Session {
    protocol: &'static str,
    packets: Vec<(FlowDirection, Vec<u8>)>,
    /// First of the packets that a client could send again, with the same responses.
    repeatable_from: Option<usize>,
}

impl Session {
    pub(crate) fn new(protocol: &'static str) -> Session {
        Session { protocol, packets: Vec::new(), repeatable_from: None }
    }

    /// A packet of the client.
    pub(crate) fn client(mut self, bytes: impl AsRef<[u8]>) -> Session {
        self.packets.push((FlowDirection::ToServer, bytes.as_ref().to_vec()));
        self
    }

    /// A packet of the server.
    pub(crate) fn server(mut self, bytes: impl AsRef<[u8]>) -> Session {
        self.packets.push((FlowDirection::ToClient, bytes.as_ref().to_vec()));
        self
    }

    /// The packets after this call form whole exchanges, which may be repeated on the connection.
    /// After a gap, or when it starts in the middle, an observer must measure them again.
    pub(crate) fn repeatable(mut self) -> Session {
        self.repeatable_from = Some(self.packets.len());
        self
    }

    /// The exchanges end a connection, or change it.
    pub(crate) fn not_repeatable(mut self) -> Session {
        self.repeatable_from = None;
        self
    }

    /// Compares the transcript, and feeds the session in all other ways.
    #[track_caller]
    pub(crate) fn check(self, expected: Expect) {
        self.check_after("", expected);
    }

    /// As [`check`](Self::check); the transcript starts with this line, which is not part of what
    /// is expected.
    #[track_caller]
    pub(crate) fn check_after(self, first_line: &str, expected: Expect) {
        let truth = self.transcript(CaptureStart::FirstByte, &self.whole_steps());
        let text = truth.to_string();
        let rest = text.strip_prefix(first_line);
        expected.assert_eq(rest.unwrap_or_else(|| panic!("{text} without {first_line}")));
        self.check_pieces(&truth);
        self.check_starts();
        self.check_cuts();
        self.check_losses();
    }

    /// Compares the transcript only: for connections whose start decides how they are read.
    #[track_caller]
    pub(crate) fn check_whole(self, expected: Expect) {
        expected.assert_eq(&self.transcript_text());
    }

    /// Compares the transcript of a capture that starts with the first packet, in the middle of the
    /// connection.
    #[track_caller]
    pub(crate) fn check_late(self, expected: Expect) {
        let transcript = self.transcript(CaptureStart::Midstream, &self.whole_steps());
        expected.assert_eq(&transcript.to_string());
    }

    /// What an observer finds.
    pub(crate) fn transcript_text(&self) -> String {
        self.transcript(CaptureStart::FirstByte, &self.whole_steps()).to_string()
    }

    /// The transcript if `length` bytes of a packet are missing; packets are numbered from 1.
    pub(crate) fn text_with_gap(&self, packet: usize, start: usize, length: usize) -> String {
        let packet = packet - 1;
        let end = start + length;
        let steps = self.whole_steps().into_iter().flat_map(|step| {
            let size = step.range.end;
            let parts = [(0..start, false), (start..end, true), (end..size, false)];
            let is_cut = step.packet == packet;
            let part = |(range, is_gap)| Step { packet, range, is_gap };
            if is_cut { parts.into_iter().map(part).collect() } else { vec![step] }
        });
        self.transcript(CaptureStart::FirstByte, &steps.collect::<Vec<_>>()).to_string()
    }

    /// The session as a script of [`observe`](crate::checks::observer_checks::observe).
    pub(crate) fn script(&self) -> Vec<u8> {
        let mut script = vec![0];
        for (direction, bytes) in &self.packets {
            for piece in bytes.chunks(usize::from(u16::MAX)) {
                script.push(if *direction == FlowDirection::ToClient { TO_CLIENT } else { 0 });
                script.extend((piece.len() as u16).to_le_bytes());
                script.extend(piece);
            }
        }
        script.extend([GAP, 1, 0]);
        script
    }

    fn whole_steps(&self) -> Vec<Step> {
        let whole = |(packet, (_, bytes)): (usize, &(FlowDirection, Vec<u8>))| Step {
            packet,
            range: 0..bytes.len(),
            is_gap: false,
        };
        self.packets.iter().enumerate().map(whole).collect()
    }

    /// The result does not depend on how packets are divided.
    #[track_caller]
    fn check_pieces(&self, truth: &Transcript) {
        let mut random = RandomNumbers(1);
        for round in 0..20 {
            let mut steps = Vec::new();
            for (packet, (_, bytes)) in self.packets.iter().enumerate() {
                let mut at = 0;
                while at < bytes.len() {
                    // Round 0 feeds single bytes; later rounds larger pieces, and empty ones.
                    let length = if round == 0 { 1 } else { random.below(4 * round + 1) };
                    let end = bytes.len().min(at + length);
                    steps.push(Step { packet, range: at..end, is_gap: false });
                    at = end;
                }
            }
            let transcript = self.transcript(CaptureStart::FirstByte, &steps);
            assert_eq!(transcript.to_string(), truth.to_string(), "in pieces, round {round}");
        }
    }

    /// Capture starts at any packet, and inside any packet.
    #[track_caller]
    fn check_starts(&self) {
        let long = self.repeated();
        let truth = long.transcript(CaptureStart::FirstByte, &long.whole_steps());
        let mut random = RandomNumbers(2);
        for first in 0..self.packets.len() {
            let length = self.packets[first].1.len();
            for from in [0, random.below(length + 1), length.saturating_sub(1)] {
                let mut steps = long.whole_steps().split_off(first);
                steps[0].range.start = from;
                let context = format!("capture starts with byte {from} of packet {}", first + 1);
                long.check_part(CaptureStart::Midstream, &steps, &truth, &context);
            }
        }
    }

    /// Bytes of one direction are missing. The observer learns it at once, or when the next bytes
    /// of the direction arrive, as from a tracker that waits for a retransmission.
    #[track_caller]
    fn check_cuts(&self) {
        let long = self.repeated();
        let truth = long.transcript(CaptureStart::FirstByte, &long.whole_steps());
        let mut random = RandomNumbers(3);
        for direction in [FlowDirection::ToServer, FlowDirection::ToClient] {
            let all = self.packets.iter().filter(|packet| packet.0 == direction);
            let total: usize = all.map(|packet| packet.1.len()).sum();
            for at in (0..total).step_by(1 + total / CUTS_MAX) {
                for length in [1, 1 + random.below(40), 1 + random.below(total)] {
                    let missing = at..(at + length).min(total);
                    for is_late in [false, true] {
                        let steps = long.cut_steps(direction, &missing, is_late);
                        let late = if is_late { "late" } else { "at once" };
                        let context = format!("{direction:?}: {missing:?} missing, told {late}");
                        long.check_part(CaptureStart::FirstByte, &steps, &truth, &context);
                    }
                }
            }
        }
    }

    /// Many packets are missing, in both directions; in sessions that are long enough for it.
    #[track_caller]
    fn check_losses(&self) {
        if self.repeatable_from.is_none() {
            return;
        }
        let long = self.repeated();
        let truth = long.transcript(CaptureStart::FirstByte, &long.whole_steps());
        let mut random = RandomNumbers(4);
        for round in 0..LOSS_ROUNDS {
            let mut steps: Vec<Step> = Vec::new();
            let mut late: BTreeMap<FlowDirection, Step> = BTreeMap::new();
            for step in long.whole_steps() {
                let direction = long.packets[step.packet].0;
                if random.below(10) > 0 {
                    steps.extend(late.remove(&direction));
                    steps.push(step);
                } else if round % 2 == 0 {
                    steps.push(Step { is_gap: true, ..step });
                } else {
                    let gap = late.entry(direction).or_insert(Step {
                        packet: step.packet,
                        range: 0..0,
                        is_gap: true,
                    });
                    gap.range.end += step.range.len();
                }
            }
            steps.extend(late.into_values());
            let context = format!("a tenth of the packets is missing, round {round}");
            long.check_operations(CaptureStart::FirstByte, &steps, &truth, &context);
        }
    }

    /// Steps without the bytes `missing` of the stream of a direction.
    fn cut_steps(&self, cut: FlowDirection, missing: &Range<usize>, is_late: bool) -> Vec<Step> {
        let (mut steps, mut position, mut late) = (Vec::new(), 0, None);
        for step in self.whole_steps() {
            let (direction, bytes) = &self.packets[step.packet];
            if *direction != cut {
                steps.push(step);
                continue;
            }
            let start = position;
            position += bytes.len();
            let inside = |at: usize| at.clamp(start, position) - start;
            let gap = inside(missing.start)..inside(missing.end);
            let part = |range, is_gap| Step { packet: step.packet, range, is_gap };
            if gap.is_empty() {
                steps.extend(late.take());
                steps.push(part(0..bytes.len(), false));
                continue;
            }
            if gap.start > 0 {
                steps.push(part(0..gap.start, false));
            }
            match &mut late {
                // One gap over several packets.
                Some(Step { range, .. }) => range.end += gap.len(),
                None if is_late => late = Some(part(gap.clone(), true)),
                None => steps.push(part(gap.clone(), true)),
            }
            if gap.end < bytes.len() {
                steps.extend(late.take());
                steps.push(part(gap.end..bytes.len(), false));
            }
        }
        // The end of the connection shows it at last.
        steps.extend(late);
        steps
    }

    /// Each operation that is found is a true one, none is counted twice, and the last repetition
    /// is measured.
    #[track_caller]
    fn check_part(&self, start: CaptureStart, steps: &[Step], truth: &Transcript, context: &str) {
        let (found, unmatched) = self.check_operations(start, steps, truth, context);
        if self.repeatable_from.is_none() {
            return;
        }
        let last_start = self.last_repetition() as u64;
        let missing: Vec<_> =
            unmatched.iter().filter(|one| one.first_packet > last_start).collect();
        assert!(missing.is_empty(), "{context}: the last repetition lacks {missing:?}\n{found}");
    }

    /// Each operation that is found is a true one, and none is counted twice. Returns what was
    /// found and the true operations that were not.
    #[track_caller]
    fn check_operations<'a>(
        &self,
        start: CaptureStart,
        steps: &[Step],
        truth: &'a Transcript,
        context: &str,
    ) -> (Transcript, Vec<&'a OperationLine>) {
        let found = self.transcript(start, steps);
        let mut unmatched: Vec<&OperationLine> = truth.operations.iter().collect();
        for operation in &found.operations {
            let is_same = |one: &&OperationLine| operation.is_part_of(one);
            let Some(at) = unmatched.iter().position(is_same) else {
                panic!("{context}: {} is not a true operation\n{found}\n{truth}", operation.line)
            };
            unmatched.remove(at);
        }
        let counts = (found.requests(), truth.requests());
        assert!(counts.0 <= counts.1, "{context}: {counts:?} requests\n{found}");
        (found, unmatched)
    }

    /// The session, and its repeatable packets several times.
    fn repeated(&self) -> Session {
        let mut long = self.clone();
        if let Some(from) = self.repeatable_from {
            for _ in 0..REPETITIONS {
                long.packets.extend_from_slice(&self.packets[from..]);
            }
        }
        long
    }

    /// Number of packets before the last repetition of a session that is already repeated.
    fn last_repetition(&self) -> usize {
        let from = self.repeatable_from.unwrap_or(0);
        let repeated = (self.packets.len() - from) / (REPETITIONS + 1);
        self.packets.len() - repeated
    }

    fn transcript(&self, start: CaptureStart, steps: &[Step]) -> Transcript {
        let mut observer = (protocol(self.protocol).observer)(start);
        let mut transcript = Transcript::default();
        for step in steps {
            let (direction, bytes) = &self.packets[step.packet];
            if step.is_gap {
                observer.skip(*direction, step.range.len() as u64, &mut transcript);
            } else {
                let time = step.packet as u64 + 1;
                observer.read(*direction, time, &bytes[step.range.clone()], &mut transcript);
            }
        }
        transcript.finish(observer.as_mut());
        transcript
    }
}

/// A part of a packet that is read, or missing.
#[derive(Debug)]
struct Step {
    packet: usize,
    range: Range<usize>,
    is_gap: bool,
}

/// What an observer found.
#[derive(Default)]
struct Transcript {
    operations: Vec<OperationLine>,
    not_measured: BTreeMap<NotMeasuredReason, u64>,
    unparsed: BTreeMap<FlowDirection, u64>,
    in_flight: Vec<String>,
    state: Option<ObserverState>,
}

/// An operation as text.
#[derive(Debug)]
struct OperationLine {
    line: String,
    /// The same without the statement.
    line_without_statement: String,
    has_statement: bool,
    first_packet: u64,
}

impl OperationLine {
    /// Whether it is this true operation. The statement may be unknown, if it was named by
    /// messages that were not captured.
    fn is_part_of(&self, truth: &OperationLine) -> bool {
        match self.has_statement {
            true => self.line == truth.line,
            false => self.line_without_statement == truth.line_without_statement,
        }
    }
}

impl Transcript {
    fn finish(&mut self, observer: &mut dyn ConnectionObserver) {
        self.state = Some(observer.state());
        assert!(observer.memory() <= MEMORY_MAX, "{} bytes", observer.memory());
        let lines = &mut self.in_flight;
        observer.in_flight(&mut |request| {
            let wait = if request.is_wait { " wait" } else { "" };
            let (verb, statement) = (request.verb, request.statement);
            lines.push(format!("{verb} {statement:?}{wait} since {}", request.since));
        });
        let before = self.requests();
        observer.end(self);
        let ended = self.requests() - before;
        assert_eq!(ended, self.in_flight.len() as u64, "requests in flight at the end");
        observer.in_flight(&mut |request| panic!("after the end: {request:?}"));
    }

    /// Requests that were measured or counted.
    fn requests(&self) -> u64 {
        self.operations.len() as u64 + self.not_measured.values().sum::<u64>()
    }
}

impl OperationSink for Transcript {
    fn operation(&mut self, operation: &Operation<'_>) {
        let line_with = |statement: &str| {
            let mut line = format!(
                "{}-{} {}-{} {}",
                operation.request_start,
                operation.request_end,
                operation.response_start,
                operation.response_end,
                operation.verb,
            );
            if !statement.is_empty() {
                write!(line, " {:?} {statement:?}", operation.syntax).unwrap();
            }
            match operation.outcome {
                OperationOutcome::Ok => line.push_str(" ok"),
                OperationOutcome::Error(class) => write!(line, " error {class}").unwrap(),
            }
            write!(line, ", {}/{} B", operation.request_bytes, operation.response_bytes).unwrap();
            if let Some(rows) = operation.rows {
                write!(line, ", rows {rows}").unwrap();
            }
            if operation.is_wait {
                line.push_str(", wait");
            }
            if let Some(traceparent) = operation.traceparent {
                write!(line, ", traceparent {traceparent}").unwrap();
            }
            line
        };
        self.operations.push(OperationLine {
            line: line_with(operation.statement),
            line_without_statement: line_with(""),
            has_statement: !operation.statement.is_empty(),
            first_packet: operation.request_start,
        });
    }

    fn not_measured(&mut self, requests: u64, reason: NotMeasuredReason) {
        *self.not_measured.entry(reason).or_default() += requests;
    }

    fn unparsed(&mut self, direction: FlowDirection, bytes: u64) {
        *self.unparsed.entry(direction).or_default() += bytes;
    }
}

impl std::fmt::Display for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for operation in &self.operations {
            writeln!(f, "{}", operation.line)?;
        }
        for line in &self.in_flight {
            writeln!(f, "in flight: {line}")?;
        }
        for (reason, requests) in self.not_measured.iter().filter(|(_, requests)| **requests > 0) {
            writeln!(f, "not measured: {requests} {reason:?}")?;
        }
        for (direction, bytes) in self.unparsed.iter().filter(|(_, bytes)| **bytes > 0) {
            writeln!(f, "unparsed: {bytes} {direction:?}")?;
        }
        match self.state {
            None | Some(ObserverState::Synchronized) => Ok(()),
            Some(state) => writeln!(f, "{state:?}"),
        }
    }
}

/// Numbers that are the same in each run (SplitMix64).
struct RandomNumbers(u64);

impl RandomNumbers {
    /// A number below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % (end as u64).max(1)) as usize
    }
}
