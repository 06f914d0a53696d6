//! Encodings of series keys.

/// Which decoder made a series' key. Keys of different ways are never mixed up, so two that make different things of
/// the same bytes need two ways. The numbers live no longer than the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SeriesKeyEncoding {
    /// The series' canonical form: what is made here, and whatever has no cheaper key.
    Canonical,
    /// `collect::place`: JSON, HDR logs, single records.
    Generic,
    /// Remote write, version 1.
    RemoteWrite1,
    /// Remote write, version 2.
    RemoteWrite2,
    /// OTLP.
    Otlp,
    /// InfluxDB's lines.
    Influx,
    /// StatsD and Graphite.
    LineProtocol,
    /// This host's metrics.
    Host,
    /// What programs of this host record.
    SharedMemory,
}
