//! Latencies of operations between other programs, from packets alone: capture files, packet
//! decoding, TCP tracking, and tables of operations. All times are those of the packets or calls.
//!
//! A [`CaptureFile`] returns packets, a [`ConnectionTracker`] assembles the streams of both
//! directions of each connection and passes their bytes to the observer of the protocol (crate
//! `protocol`), and the operations that it finds are recorded in histograms. A [`PacketRing`]
//! captures packets live. [`TlsProbes`] read the plaintext of TLS sessions at the library, for the
//! same observers. Nothing is guessed: what was not captured is counted, and a request that
//! it may have affected is not measured.
#![deny(unsafe_code)]

mod capabilities;
mod capture_file;
mod capture_filter;
mod capture_memory;
mod capture_totals;
mod clock_offset;
mod completeness;
mod connection;
mod connection_table;
mod datagram_flow;
mod elf_symbols;
mod end_clocks;
mod end_comparison;
mod end_matcher;
mod end_names;
mod end_report;
mod fingerprint_cache;
mod go_functions;
mod in_flight;
mod key_log;
mod listening_sockets;
mod machine_code;
mod operation_totals;
mod packet;
mod packet_ring;
mod peer_table;
mod port_detection;
mod request_log;
mod ring_block;
mod segment_boundaries;
mod service;
mod service_rule;
mod statement_normalizer;
mod statement_table;
mod statement_texts;
mod stream;
mod stream_marks;
mod text_hash;
mod timeout_spikes;
mod tls_decryption;
mod tls_event;
mod tls_library;
mod tls_probes;
mod tls_program;
mod tls_session;
mod tls_target;
mod traced_operation;
mod tracker;
mod wait_rules;

pub use capabilities::{
    give_up_all_but_capture, give_up_capabilities, give_up_capture, may_capture,
};
pub use capture_file::{CaptureFile, CaptureFileError, CapturedPacket, LinkType};
pub use capture_filter::PORTS_MAX;
pub use capture_memory::CaptureMemory;
pub use capture_totals::{CaptureTotals, TrafficCounter};
pub use clock_offset::OffsetInterval;
pub use completeness::{Completeness, NotMeasuredCounts};
pub use elf_symbols::find_functions;
pub use end_comparison::{
    BoundedTimes, ConnectTimes, EndComparison, EndCounts, OffsetSummary, ServiceComparison,
};
pub use end_matcher::{
    EndInterval, EndMatcher, MatchedService, MatchedTotals, PairOffset, ReportOutcome,
    ReportedService,
};
pub use end_report::{ConnectionEnd, EndRecords, EndReport, EndReportCounts, EndReportError};
pub use fingerprint_cache::FingerprintCacheCounts;
pub use in_flight::InFlightSummary;
pub use key_log::{KeyLog, KeyLogCounts};
pub use listening_sockets::{ListeningSocket, listening_sockets, process_ids, socket_inodes};
pub use operation_totals::OperationTotals;
pub use packet::{Packet, TcpFlags, TransportHeader, UndecodedReason};
pub use packet_ring::{CaptureError, PacketRing, RING_BLOCKS, RingSettings, RingStatistics};
pub use peer_table::{OTHER_PEERS, PeerSettings};
pub use port_detection::{DETECTION_PERIOD, DetectedServices, PortDetector};
pub use segment_boundaries::{SegmentBoundaries, StreamCuts};
pub use service::{RecentOperations, ServiceInterval, ServiceStatistics};
pub use service_rule::{ServiceRule, ServiceTransport, find_protocol};
pub use statement_table::{OperationHistograms, StatementStatistics, StatementTable};
pub use timeout_spikes::{ProposedWait, TimeoutSpikes};
pub use tls_event::{TlsClock, TlsEvent, TlsEventKind, TlsSocket};
pub use tls_library::LeftOutLibraries;
pub use tls_probes::{TLS_RING_BYTES, TlsProbes};
pub use tls_session::TlsTotals;
pub use tls_target::{TlsProbeError, TlsTarget};
pub use traced_operation::{TracedOperation, TracedOperations};
pub use tracker::{ConnectionTracker, TrackerInterval, TrackerSettings};
pub use wait_rules::WaitRules;
