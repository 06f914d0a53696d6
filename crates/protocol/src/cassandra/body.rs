//! Contents of message bodies: statements, ids, numbers of rows and error codes.
//!
//! A body is read by a stack of parts. Values and rows are not read; of their metadata only the
//! length is of interest, because the number of rows follows it.

/// Part of a body that is yet to be read.
#[derive(Clone, Copy)]
pub(super) enum BodyPart {
    /// Bytes of no interest.
    Fixed(u32),
    /// A string of no interest, with a 16-bit length.
    ShortText,
    /// Bytes of no interest, with a 32-bit length.
    LongBytes,
    /// A statement with a 32-bit length.
    Statement,
    /// The rest of a statement.
    StatementRest(u32),
    /// Id of a prepared statement.
    PreparedId,
    /// A statement or an id of a batch, as a byte before it says, and its values.
    BatchStatement,
    /// A 16-bit number, and so many elements.
    Array(&'static [BodyPart]),
    /// So many elements.
    Elements(u32, &'static [BodyPart]),
    ErrorCode,
    /// Kind of a result, and what follows it.
    ResultKind,
    /// Flags and number of columns of rows, and what follows them.
    RowsMetadata,
    ColumnType,
    RowCount,
}

/// Value of a part.
pub(super) enum BodyValue<'a> {
    /// The next characters of a statement.
    Text(&'a str),
    /// A statement follows.
    TextStart,
    PreparedId(&'a [u8]),
    /// The result has the id of the statement that was prepared.
    NewPreparedId(&'a [u8]),
    ErrorCode(u32),
    Rows(u32),
}

/// Nesting of column types, at most. The metadata of deeper ones is not read.
const PARTS_MAX: usize = 64;

/// Ids are MD5 sums of 16 bytes; longer ones are not read.
const ID_BYTES_MAX: usize = 64;

pub(super) const STRING_BYTES: &[BodyPart] = &[BodyPart::ShortText, BodyPart::LongBytes];
pub(super) const STRINGS: &[BodyPart] = &[BodyPart::ShortText];
pub(super) const BATCH_ELEMENTS: &[BodyPart] = &[BodyPart::BatchStatement];
const VALUES: &[BodyPart] = &[BodyPart::LongBytes];
const TYPES: &[BodyPart] = &[BodyPart::ColumnType];
const NAMED_TYPES: &[BodyPart] = &[BodyPart::ShortText, BodyPart::ColumnType];
const COLUMNS_OF_TABLES: &[BodyPart] =
    &[BodyPart::ShortText, BodyPart::ShortText, BodyPart::ShortText, BodyPart::ColumnType];

/// Flags of the metadata of rows.
const GLOBAL_TABLE: u32 = 1;
const MORE_PAGES: u32 = 2;
const NO_METADATA: u32 = 4;
const METADATA_CHANGED: u32 = 8;

/// Kinds of a result.
const ROWS: u32 = 2;
const PREPARED: u32 = 4;

/// Position in a body.
#[derive(Default)]
pub(super) struct BodyCursor {
    /// The next part is the last one.
    parts: Vec<BodyPart>,
}

impl BodyCursor {
    /// Starts a body with these parts, the first one last.
    pub(super) fn start(&mut self, parts: impl IntoIterator<Item = BodyPart>) {
        self.parts.clear();
        self.parts.extend(parts);
    }

    pub(super) fn memory(&self) -> usize {
        self.parts.capacity() * size_of::<BodyPart>()
    }

    /// Reads parts as far as `bytes` allow. Returns the number of bytes that it took, which may be
    /// more than it was given, or `None` if it requires more. The rest of a body without parts is
    /// taken.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(BodyValue<'_>),
    ) -> Option<u64> {
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken as usize..).unwrap_or_default();
            let Some(part) = self.parts.pop() else { return Some(u64::MAX) };
            match self.read_part(part, rest, visit) {
                Some(more) => taken += more,
                None => {
                    self.parts.push(part);
                    return (taken > 0).then_some(taken);
                }
            }
            if taken > bytes.len() as u64 {
                return Some(taken);
            }
            if self.parts.len() > PARTS_MAX {
                self.parts.clear();
            }
        }
    }

    fn read_part(
        &mut self,
        part: BodyPart,
        bytes: &[u8],
        visit: &mut impl FnMut(BodyValue<'_>),
    ) -> Option<u64> {
        match part {
            BodyPart::Fixed(size) => Some(u64::from(size)),
            BodyPart::ShortText => Some(2 + u64::from(be16(bytes, 0)?)),
            BodyPart::LongBytes => Some(4 + long_length(bytes)?),
            BodyPart::Statement => {
                let length = long_length(bytes)? as u32;
                self.parts.push(BodyPart::StatementRest(length));
                visit(BodyValue::TextStart);
                Some(4)
            }
            BodyPart::StatementRest(0) => Some(0),
            BodyPart::StatementRest(length) => self.read_text(length, bytes, visit),
            BodyPart::PreparedId => {
                let (id, taken) = short_bytes(bytes)?;
                visit(BodyValue::PreparedId(id));
                Some(taken)
            }
            BodyPart::BatchStatement => {
                let statement = match bytes.first()? {
                    0 => BodyPart::Statement,
                    _ => BodyPart::PreparedId,
                };
                self.parts.extend([BodyPart::Array(VALUES), statement]);
                Some(1)
            }
            BodyPart::Array(elements) => {
                self.parts.push(BodyPart::Elements(u32::from(be16(bytes, 0)?), elements));
                Some(2)
            }
            BodyPart::Elements(0, _) => Some(0),
            BodyPart::Elements(count, elements) => {
                self.parts.push(BodyPart::Elements(count - 1, elements));
                self.parts.extend(elements.iter().rev());
                Some(0)
            }
            BodyPart::ErrorCode => {
                visit(BodyValue::ErrorCode(be32(bytes, 0)?));
                Some(4)
            }
            BodyPart::ResultKind => self.read_result(bytes, visit),
            BodyPart::RowsMetadata => {
                self.read_rows_metadata(be32(bytes, 0)?, be32(bytes, 4)?);
                Some(8)
            }
            BodyPart::ColumnType => self.read_type(bytes),
            BodyPart::RowCount => {
                visit(BodyValue::Rows(be32(bytes, 0)?));
                Some(4)
            }
        }
    }

    /// Reads the characters of a statement that are whole.
    fn read_text(
        &mut self,
        length: u32,
        bytes: &[u8],
        visit: &mut impl FnMut(BodyValue<'_>),
    ) -> Option<u64> {
        let available = bytes.len().min(length as usize);
        let is_end = available == length as usize;
        let (text, replaced) = match std::str::from_utf8(&bytes[..available]) {
            Ok(text) => (text, 0),
            Err(error) => {
                let valid = &bytes[..error.valid_up_to()];
                let replaced = match error.error_len() {
                    None if !is_end => 0,
                    None => available - valid.len(),
                    Some(invalid) => invalid,
                };
                (std::str::from_utf8(valid).unwrap_or_default(), replaced)
            }
        };
        let taken = text.len() + replaced;
        if taken == 0 {
            return None;
        }
        visit(BodyValue::Text(text));
        if replaced > 0 {
            visit(BodyValue::Text("\u{fffd}"));
        }
        self.parts.push(BodyPart::StatementRest(length - taken as u32));
        Some(taken as u64)
    }

    fn read_result(&mut self, bytes: &[u8], visit: &mut impl FnMut(BodyValue<'_>)) -> Option<u64> {
        match be32(bytes, 0)? {
            ROWS => self.parts.push(BodyPart::RowsMetadata),
            PREPARED => {
                let (id, taken) = short_bytes(&bytes[4..])?;
                visit(BodyValue::NewPreparedId(id));
                return Some(4 + taken);
            }
            _ => {}
        }
        Some(4)
    }

    fn read_rows_metadata(&mut self, flags: u32, columns: u32) {
        self.parts.push(BodyPart::RowCount);
        if flags & NO_METADATA == 0 {
            if flags & GLOBAL_TABLE == 0 {
                self.parts.push(BodyPart::Elements(columns, COLUMNS_OF_TABLES));
            } else {
                self.parts.push(BodyPart::Elements(columns, NAMED_TYPES));
                self.parts.extend([BodyPart::ShortText, BodyPart::ShortText]);
            }
        }
        if flags & METADATA_CHANGED != 0 {
            self.parts.push(BodyPart::ShortText);
        }
        if flags & MORE_PAGES != 0 {
            self.parts.push(BodyPart::LongBytes);
        }
    }

    fn read_type(&mut self, bytes: &[u8]) -> Option<u64> {
        match be16(bytes, 0)? {
            0x00 => self.parts.push(BodyPart::ShortText), // custom
            0x20 | 0x22 => self.parts.push(BodyPart::ColumnType), // list, set
            0x21 => self.parts.extend([BodyPart::ColumnType; 2]), // map
            // User-defined type: keyspace, name and fields.
            0x30 => {
                self.parts.push(BodyPart::Array(NAMED_TYPES));
                self.parts.extend([BodyPart::ShortText; 2]);
            }
            0x31 => self.parts.push(BodyPart::Array(TYPES)), // tuple
            _ => {}
        }
        Some(2)
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A 32-bit length. Null and unset are negative, and have no bytes.
fn long_length(bytes: &[u8]) -> Option<u64> {
    let length = i32::from_be_bytes(*bytes.first_chunk()?);
    Some(u64::try_from(length).unwrap_or(0))
}

/// Bytes with a 16-bit length, and the number of bytes that they take; empty if they are too long.
fn short_bytes(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let length = be16(bytes, 0)?;
    let taken = 2 + u64::from(length);
    if usize::from(length) > ID_BYTES_MAX {
        return Some((&[], taken));
    }
    Some((bytes[2..].get(..usize::from(length))?, taken))
}
