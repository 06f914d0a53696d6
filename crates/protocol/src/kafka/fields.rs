//! Fields of the messages whose body is read, and a cursor over them.
//!
//! Produce and Fetch have topics and the result of each partition, with records between them;
//! Metadata has the names of topic ids. Of other messages only the error code is read. The layouts
//! are those of the message definitions of Apache Kafka 4.1.

use super::api::{FETCH, KafkaApi, METADATA, PRODUCE};

/// A field, and the versions that have it.
pub(super) struct MessageField {
    kind: FieldKind,
    from: i16,
    until: i16,
}

/// Kind of a field.
enum FieldKind {
    /// Bytes of no interest.
    Fixed(u8),
    /// A number of this size.
    Number(u8, NumberField),
    /// A string of no interest, which may be null.
    Text,
    /// Bytes of no interest, which may be null.
    Blob,
    TopicName,
    TopicId,
    /// Record batches.
    Records,
    /// An array of 32-bit numbers.
    Numbers,
    Array(&'static [MessageField]),
    /// Tagged fields, in flexible versions.
    Tags,
    /// One tagged field.
    Tag,
}

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberField {
    Acks,
    MaxWaitMs,
    MinBytes,
    IsolationLevel,
    SessionEpoch,
    ErrorCode,
    HighWatermark,
    LastStableOffset,
}

/// Value of a field.
pub(super) enum KafkaFieldValue<'a> {
    Number(NumberField, i64),
    TopicName(&'a [u8]),
    TopicId([u8; 16]),
    /// A batch of this many records, which ends before an offset.
    Batch {
        records: u32,
        end_offset: i64,
    },
}

const fn all(kind: FieldKind) -> MessageField {
    MessageField { kind, from: 0, until: i16::MAX }
}

const fn from(version: i16, kind: FieldKind) -> MessageField {
    MessageField { kind, from: version, until: i16::MAX }
}

const fn until(version: i16, kind: FieldKind) -> MessageField {
    MessageField { kind, from: 0, until: version }
}

const fn number(size: u8, number_field: NumberField) -> MessageField {
    all(FieldKind::Number(size, number_field))
}

const TAGS: MessageField = all(FieldKind::Tags);

static TAG: [MessageField; 1] = [all(FieldKind::Tag)];

static HEADER_TAGS: [MessageField; 1] = [TAGS];

static NO_FIELDS: [MessageField; 0] = [];

static ERROR: [MessageField; 1] = [number(2, NumberField::ErrorCode)];

static THROTTLE_ERROR: [MessageField; 2] =
    [all(FieldKind::Fixed(4)), number(2, NumberField::ErrorCode)];

static PRODUCE_REQUEST: [MessageField; 4] = [
    from(3, FieldKind::Text), // transactional id
    number(2, NumberField::Acks),
    all(FieldKind::Fixed(4)), // timeout
    all(FieldKind::Array(&[
        until(12, FieldKind::TopicName),
        from(13, FieldKind::TopicId),
        all(FieldKind::Array(&[all(FieldKind::Fixed(4)), all(FieldKind::Blob), TAGS])),
        TAGS,
    ])),
];

static PRODUCE_RESPONSE: [MessageField; 1] = [all(FieldKind::Array(&[
    until(12, FieldKind::Text),
    from(13, FieldKind::Fixed(16)),
    all(FieldKind::Array(&[
        all(FieldKind::Fixed(4)), // partition
        number(2, NumberField::ErrorCode),
        all(FieldKind::Fixed(8)),     // base offset
        from(2, FieldKind::Fixed(8)), // log append time
        from(5, FieldKind::Fixed(8)), // log start offset
        from(8, FieldKind::Array(&[all(FieldKind::Fixed(4)), all(FieldKind::Text), TAGS])),
        from(8, FieldKind::Text), // error message
        TAGS,
    ])),
    TAGS,
]))];

static FETCH_REQUEST: [MessageField; 8] = [
    until(14, FieldKind::Fixed(4)), // replica
    number(4, NumberField::MaxWaitMs),
    number(4, NumberField::MinBytes),
    from(3, FieldKind::Fixed(4)), // maximum bytes
    from(4, FieldKind::Number(1, NumberField::IsolationLevel)),
    from(7, FieldKind::Fixed(4)), // session
    from(7, FieldKind::Number(4, NumberField::SessionEpoch)),
    all(FieldKind::Array(&[
        until(12, FieldKind::TopicName),
        from(13, FieldKind::TopicId),
        all(FieldKind::Array(&[
            all(FieldKind::Fixed(4)),      // partition
            from(9, FieldKind::Fixed(4)),  // leader epoch
            all(FieldKind::Fixed(8)),      // offset
            from(12, FieldKind::Fixed(4)), // last fetched epoch
            from(5, FieldKind::Fixed(8)),  // log start offset
            all(FieldKind::Fixed(4)),      // maximum bytes
            from(12, FieldKind::Tags),
        ])),
        from(12, FieldKind::Tags),
    ])),
];

static FETCH_RESPONSE: [MessageField; 4] = [
    from(1, FieldKind::Fixed(4)), // throttle time
    from(7, FieldKind::Number(2, NumberField::ErrorCode)),
    from(7, FieldKind::Fixed(4)), // session
    all(FieldKind::Array(&[
        until(12, FieldKind::Text),
        from(13, FieldKind::Fixed(16)),
        all(FieldKind::Array(&[
            all(FieldKind::Fixed(4)), // partition
            number(2, NumberField::ErrorCode),
            number(8, NumberField::HighWatermark),
            from(4, FieldKind::Number(8, NumberField::LastStableOffset)),
            from(5, FieldKind::Fixed(8)), // log start offset
            from(4, FieldKind::Array(&[all(FieldKind::Fixed(16)), TAGS])), // aborted transactions
            from(11, FieldKind::Fixed(4)), // preferred replica
            all(FieldKind::Records),
            TAGS,
        ])),
        TAGS,
    ])),
];

static METADATA_RESPONSE: [MessageField; 5] = [
    from(3, FieldKind::Fixed(4)), // throttle time
    all(FieldKind::Array(&[
        all(FieldKind::Fixed(4)),
        all(FieldKind::Text),
        all(FieldKind::Fixed(4)),
        from(1, FieldKind::Text),
        TAGS,
    ])),
    from(2, FieldKind::Text),     // cluster
    from(1, FieldKind::Fixed(4)), // controller
    all(FieldKind::Array(&[
        number(2, NumberField::ErrorCode),
        all(FieldKind::TopicName),
        from(10, FieldKind::TopicId),
        from(1, FieldKind::Fixed(1)), // internal
        all(FieldKind::Array(&[
            all(FieldKind::Fixed(10)), // error, partition, leader
            from(7, FieldKind::Fixed(4)),
            all(FieldKind::Numbers),
            all(FieldKind::Numbers),
            from(5, FieldKind::Numbers),
            TAGS,
        ])),
        from(8, FieldKind::Fixed(4)), // authorized operations
        TAGS,
    ])),
];

/// Fields of a request after its client id.
pub(super) fn request_fields(api: &KafkaApi, version: i16) -> &'static [MessageField] {
    match api.key {
        _ if version > api.version_max => &NO_FIELDS,
        PRODUCE => &PRODUCE_REQUEST,
        FETCH => &FETCH_REQUEST,
        _ => &NO_FIELDS,
    }
}

/// Fields of a response after its correlation id.
pub(super) fn response_fields(api: &KafkaApi, version: i16) -> &'static [MessageField] {
    match api.key {
        _ if version > api.version_max => &NO_FIELDS,
        PRODUCE => &PRODUCE_RESPONSE,
        FETCH => &FETCH_RESPONSE,
        METADATA => &METADATA_RESPONSE,
        _ if !api.error.versions.contains(&version) => &NO_FIELDS,
        _ if version < api.error.throttle_from => &ERROR,
        _ => &THROTTLE_ERROR,
    }
}

/// Fetch: response, topics, partitions, aborted transactions, tags, and one more.
const DEPTH_MAX: usize = 6;

/// Longest name of a topic that brokers accept is 249 bytes.
const TOPIC_NAME_BYTES_MAX: u64 = 249;

/// Header of a record batch, up to the number of records.
const BATCH_HEADER_BYTES: usize = 61;

/// Header of a message of the formats before batches, up to its version.
const OLD_MESSAGE_HEADER_BYTES: usize = 17;

/// Position in the fields of a message.
pub(super) struct FieldCursor {
    levels: [FieldLevel; DEPTH_MAX],
    depth: usize,
    version: i16,
    is_flexible: bool,
    /// Bytes of record batches before the next field.
    records_bytes: u64,
}

/// Position in the fields of a message or of the elements of an array.
#[derive(Clone, Copy)]
struct FieldLevel {
    fields: &'static [MessageField],
    next: u16,
    /// Elements after this one.
    more_elements: u32,
}

/// Result of a step of a cursor.
enum CursorStep {
    /// It took bytes, perhaps more than it was given.
    Taken(u64),
    /// The next field requires more bytes.
    Incomplete,
    /// All fields are read, or the message does not match its layout.
    Complete,
}

impl FieldCursor {
    /// A cursor that passes over all.
    pub(super) fn at_end() -> FieldCursor {
        FieldCursor::new(&[], 0, false, false)
    }

    /// A cursor at the tagged fields of the header, or at the first field.
    pub(super) fn new(
        fields: &'static [MessageField],
        version: i16,
        is_flexible: bool,
        is_header_flexible: bool,
    ) -> FieldCursor {
        let level = |fields| FieldLevel { fields, next: 0, more_elements: 0 };
        let mut levels = [level(&NO_FIELDS[..]); DEPTH_MAX];
        levels[0] = level(fields);
        let mut depth = usize::from(!fields.is_empty());
        if is_header_flexible && depth > 0 {
            levels[1] = level(&HEADER_TAGS);
            depth = 2;
        }
        FieldCursor { levels, depth, version, is_flexible, records_bytes: 0 }
    }

    /// Reads fields as far as `bytes` allow. Returns the number of bytes that it took, perhaps more
    /// than it was given, or `None` if it requires more. After the fields it takes all.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(KafkaFieldValue<'_>),
    ) -> Option<u64> {
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken as usize..).unwrap_or_default();
            let step = match self.records_bytes {
                0 => self.read_field(rest, visit),
                _ => self.read_batch(rest, visit),
            };
            match step {
                CursorStep::Taken(more) => taken += more,
                _ if taken > 0 => return Some(taken),
                CursorStep::Incomplete => return None,
                CursorStep::Complete => return Some(u64::MAX),
            }
            if taken > bytes.len() as u64 {
                return Some(taken);
            }
        }
    }

    fn read_field(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(KafkaFieldValue<'_>),
    ) -> CursorStep {
        let Some(field) = self.next_field() else { return CursorStep::Complete };
        match self.read_value(field, bytes, visit) {
            Some(taken) => CursorStep::Taken(taken),
            None => {
                // The same field again, with more bytes.
                self.levels[self.depth - 1].next -= 1;
                CursorStep::Incomplete
            }
        }
    }

    /// The next field that this version has.
    fn next_field(&mut self) -> Option<&'static MessageField> {
        while let Some(level) = self.levels[..self.depth].last_mut() {
            match level.fields.get(usize::from(level.next)) {
                Some(field) => {
                    level.next += 1;
                    if (field.from..=field.until).contains(&self.version) {
                        return Some(field);
                    }
                }
                None if level.more_elements > 0 => {
                    level.more_elements -= 1;
                    level.next = 0;
                }
                None => self.depth -= 1,
            }
        }
        None
    }

    fn read_value(
        &mut self,
        field: &'static MessageField,
        bytes: &[u8],
        visit: &mut impl FnMut(KafkaFieldValue<'_>),
    ) -> Option<u64> {
        match &field.kind {
            FieldKind::Fixed(size) => Some(u64::from(*size)),
            FieldKind::Number(size, number_field) => {
                let number = bytes.get(..usize::from(*size))?;
                visit(KafkaFieldValue::Number(*number_field, signed(number)));
                Some(u64::from(*size))
            }
            FieldKind::Text => {
                let (length, header) = self.length(bytes, 2)?;
                Some(header + length)
            }
            FieldKind::Blob => {
                let (length, header) = self.length(bytes, 4)?;
                Some(header + length)
            }
            FieldKind::TopicName => {
                let (length, header) = self.length(bytes, 2)?;
                if length <= TOPIC_NAME_BYTES_MAX {
                    visit(KafkaFieldValue::TopicName(
                        bytes.get(header as usize..)?.get(..length as usize)?,
                    ));
                }
                Some(header + length)
            }
            FieldKind::TopicId => {
                visit(KafkaFieldValue::TopicId(*bytes.first_chunk()?));
                Some(16)
            }
            FieldKind::Records => {
                let (length, header) = self.length(bytes, 4)?;
                self.records_bytes = length;
                Some(header)
            }
            FieldKind::Numbers => {
                let (length, header) = self.length(bytes, 4)?;
                Some(header + length * 4)
            }
            FieldKind::Array(fields) => {
                let (length, header) = self.length(bytes, 4)?;
                self.enter(fields, length);
                Some(header)
            }
            FieldKind::Tags if !self.is_flexible => Some(0),
            FieldKind::Tags => {
                let (count, header) = unsigned_varint(bytes)?;
                self.enter(&TAG, count);
                Some(header)
            }
            FieldKind::Tag => {
                let (_, tag) = unsigned_varint(bytes)?;
                let (size, header) = unsigned_varint(&bytes[tag as usize..])?;
                Some(tag + header + size)
            }
        }
    }

    /// Length of a string, bytes or an array, and the size of the length. Null is 0.
    fn length(&self, bytes: &[u8], size: usize) -> Option<(u64, u64)> {
        if self.is_flexible {
            let (length, header) = unsigned_varint(bytes)?;
            return Some((length.saturating_sub(1), header));
        }
        let length = signed(bytes.get(..size)?);
        Some((u64::try_from(length).unwrap_or(0), size as u64))
    }

    fn enter(&mut self, fields: &'static [MessageField], elements: u64) {
        if elements > 0 {
            assert!(self.depth < DEPTH_MAX, "a layout is deeper than {DEPTH_MAX}");
            let more_elements = u32::try_from(elements - 1).unwrap_or(u32::MAX);
            self.levels[self.depth] = FieldLevel { fields, next: 0, more_elements };
            self.depth += 1;
        }
    }

    /// Reads the header of a record batch, or of a message of an older format.
    fn read_batch(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(KafkaFieldValue<'_>),
    ) -> CursorStep {
        let available = self.records_bytes;
        if available < OLD_MESSAGE_HEADER_BYTES as u64 {
            self.records_bytes = 0;
            return CursorStep::Taken(available);
        }
        if bytes.len() < BATCH_HEADER_BYTES.min(available as usize) {
            return CursorStep::Incomplete;
        }
        let base_offset = signed(&bytes[..8]);
        let size = 12 + u64::try_from(signed(&bytes[8..12])).unwrap_or(0);
        // Brokers send whole batches up to a number of bytes, and the start of the next one.
        if size > available || size < OLD_MESSAGE_HEADER_BYTES as u64 {
            self.records_bytes = 0;
            return CursorStep::Taken(available);
        }
        match bytes[16] {
            0 | 1 => visit(KafkaFieldValue::Batch {
                records: 1,
                end_offset: base_offset.wrapping_add(1),
            }),
            2 if size >= BATCH_HEADER_BYTES as u64 => {
                let last_offset = base_offset.wrapping_add(signed(&bytes[23..27]));
                let records = u32::try_from(signed(&bytes[57..61])).unwrap_or(0);
                visit(KafkaFieldValue::Batch { records, end_offset: last_offset.wrapping_add(1) });
            }
            _ => {}
        }
        self.records_bytes -= size;
        CursorStep::Taken(size)
    }
}

/// A big-endian number of at most 8 bytes.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let start = if negative { -1 } else { 0 };
    bytes.iter().fold(start, |number, byte| number << 8 | i64::from(*byte))
}

/// A number of at most 5 bytes, seven bits each, and its size.
fn unsigned_varint(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 || at == 4 {
            return Some((number, at as u64 + 1));
        }
    }
    None
}
