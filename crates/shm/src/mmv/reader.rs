//! Sections, entries and values of a file with a valid header.

use std::collections::BTreeMap;

use super::labels::MmvLabels;
use super::layout::*;
use super::{COUNT_MAX, Error, MmvSnapshot, SECTIONS_MAX, units};
use crate::endian::{self, EndianBytes, EndianField, field_offset, record_size};
use crate::metric_snapshot::{MetricRole, MetricValue, NumericValue, ProcessSeries};

/// `pmInDom` values of metrics without instances.
const NO_INDOM: [u32; 2] = [0, u32::MAX];

/// Entries of one kind, all inside the file.
#[derive(Clone, Copy, Default)]
pub(super) struct MmvSection {
    start: u64,
    pub(super) count: u64,
    entry_bytes: u64,
}

impl MmvSection {
    /// Offset of entry `index`; the caller checked that it is below `count`.
    fn entry(&self, index: u64) -> u64 {
        self.start + index * self.entry_bytes
    }

    /// Whether an entry starts at this offset.
    fn has(&self, offset: u64) -> bool {
        let Some(inside) = offset.checked_sub(self.start) else { return false };
        inside % self.entry_bytes.max(1) == 0 && inside / self.entry_bytes.max(1) < self.count
    }
}

#[derive(Clone, Copy)]
pub(super) struct MmvSections {
    instances: MmvSection,
    metrics: MmvSection,
    pub(super) values: MmvSection,
    pub(super) labels: MmvSection,
}

/// Kinds of sections: number, name, size of an entry in version 1 and in later versions. Instance
/// domains and strings are found by references to them.
const KINDS: [(u32, &str, u64, u64); 4] = [
    (2, "instances", record_size(&INSTANCE_1), record_size(&INSTANCE_2)),
    (3, "metrics", record_size(&METRIC_1), record_size(&METRIC_2)),
    (4, "values", VALUE_BYTES, VALUE_BYTES),
    (6, "labels", LABEL_BYTES, LABEL_BYTES),
];

pub(super) struct MmvReader<'a> {
    pub(super) file: EndianBytes<'a>,
    /// Version 1: names are stored inline.
    pub(super) is_version_1: bool,
    /// Values with a certain bit pattern are unset.
    pub(super) sentinel: bool,
    /// Wall clock, microseconds since the Unix epoch.
    pub(super) wall_us: i64,
}

/// Entry of a metric, of either layout.
struct MmvMetric {
    item: u32,
    kind: i32,
    semantics: u32,
    dimension: u32,
    indom: u32,
    short: u64,
    long: u64,
}

impl<'a> MmvReader<'a> {
    pub(super) fn sections(&self, count: u32) -> Result<MmvSections, Error> {
        if u64::from(count) > SECTIONS_MAX {
            return Err(Error::Sections { found: count });
        }
        let mut found = [None; KINDS.len()];
        for index in 0..u64::from(count) {
            let start = HEADER_BYTES + index * SECTION_BYTES;
            let have = self.file.len();
            let need = start + SECTION_BYTES;
            let table = Error::Truncated { part: "sections", have, need };
            let read = || {
                let kind = self.file.u32(start + const { field_offset(&SECTION, "type") })?;
                let count = self.file.u32(start + const { field_offset(&SECTION, "count") })?;
                Some((
                    kind,
                    u64::from(count),
                    self.file.u64(start + const { field_offset(&SECTION, "offset") })?,
                ))
            };
            let (kind, count, start) = read().ok_or(table)?;
            let Some(kind_index) = KINDS.iter().position(|known| known.0 == kind) else { continue };
            let (_, what, one, two) = KINDS[kind_index];
            if count > COUNT_MAX {
                return Err(Error::Count { part: what, found: count });
            }
            let entry_bytes = if self.is_version_1 { one } else { two };
            let need = start.saturating_add(count * entry_bytes);
            if count > 0 && need > have {
                return Err(Error::Truncated { part: what, have, need });
            }
            if found[kind_index].replace(MmvSection { start, count, entry_bytes }).is_some() {
                return Err(Error::DuplicateSection { part: what });
            }
        }
        let [instances, metrics, values, labels] = found;
        Ok(MmvSections {
            instances: instances.unwrap_or_default(),
            metrics: metrics.ok_or(Error::MissingSection { part: "metrics" })?,
            values: values.ok_or(Error::MissingSection { part: "values" })?,
            labels: labels.unwrap_or_default(),
        })
    }

    pub(super) fn labels(&self, section: MmvSection, snapshot: &mut MmvSnapshot) -> MmvLabels {
        let mut labels = MmvLabels::default();
        for index in 0..section.count {
            let start = section.entry(index);
            let mut read = || {
                let flags = self.file.u32(start + const { field_offset(&LABEL, "flags") })?;
                let identity = self.file.u32(start + const { field_offset(&LABEL, "identity") })?;
                let internal = self.file.i32(start + const { field_offset(&LABEL, "internal") })?;
                const PAYLOAD: u64 = field_offset(&LABEL, "payload");
                let json = self.file.text(start + PAYLOAD, LABEL_BYTES - PAYLOAD)?;
                Some(labels.add(flags, identity, internal, json))
            };
            if !read().unwrap_or(false) {
                snapshot.reject(1, Error::Label { index });
            }
        }
        labels
    }

    /// Decodes the value with this index and its metric; subtracts the size of its texts from
    /// `text_left`.
    pub(super) fn metric(
        &self,
        index: u64,
        sections: &MmvSections,
        labels: &MmvLabels,
        text_left: &mut usize,
    ) -> Result<ProcessSeries, Error> {
        let start = sections.values.entry(index);
        let offset = |field: u64| self.file.u64(start + field).unwrap_or(u64::MAX);
        let metric = offset(const { field_offset(&VALUE, "metric") });
        let reference = |what, offset| Error::Reference { index, part: what, offset };
        let entry = Some(metric).filter(|offset| sections.metrics.has(*offset));
        let entry = entry.and_then(|offset| self.entry(offset));
        let entry = entry.ok_or(reference("metric", metric))?;
        let name = self.name(metric + NAME).ok_or(Error::Name { index, part: "name" })?;
        let mut instance = None;
        if !NO_INDOM.contains(&entry.indom) {
            let offset = offset(const { field_offset(&VALUE, "instance") });
            if !sections.instances.has(offset) {
                return Err(reference("instance", offset));
            }
            let internal = self
                .file
                .i32(offset + const { field_offset(&INSTANCE_1, "internal") })
                .unwrap_or(-1);
            let name =
                self.name(offset + EXTERNAL).ok_or(Error::Name { index, part: "instance" })?;
            instance = Some((internal, name));
        }
        let mut merged: BTreeMap<&str, &str> = BTreeMap::new();
        let mut text = name.len();
        let identity = instance.map(|(internal, _)| (entry.indom, internal));
        for group in labels.for_value(entry.item, identity) {
            // Overridden labels count too, because they were read.
            text += group.iter().map(|(name, value)| name.len() + value.len() + 16).sum::<usize>();
            merged.extend(group.iter().map(|(name, value)| (&**name, &**value)));
        }
        // The instance name overrides any label with the same name.
        merged.extend(instance.map(|(_, name)| ("instance", name)));
        let help = self.help(&entry);
        let value = self.value(start, &entry);
        text += help.len() + instance.map_or(0, |(_, name)| name.len());
        text += if let MetricValue::Text(text) = &value { text.len() } else { 0 };
        *text_left = text_left.checked_sub(text).ok_or(Error::Text { index })?;
        let unit = match entry.kind {
            ELAPSED => units::ELAPSED.to_owned(),
            STRING => String::new(),
            _ => units::unit(entry.dimension),
        };
        let labels = merged.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Ok(ProcessSeries {
            name: name.to_owned(),
            labels,
            unit,
            help,
            role: MetricRole::Other,
            related_metric: None,
            value,
        })
    }

    fn entry(&self, start: u64) -> Option<MmvMetric> {
        // Fields after the name are the same in both layouts, at different offsets.
        let rest = start + if self.is_version_1 { ITEM_1 } else { ITEM_2 };
        const fn offset_after_name(name: &str) -> u64 {
            field_offset(&METRIC_2, name) - ITEM_2
        }
        Some(MmvMetric {
            item: self.file.u32(rest)?,
            kind: self.file.i32(rest + const { offset_after_name("type") })?,
            semantics: self.file.u32(rest + const { offset_after_name("semantics") })?,
            dimension: self.file.u32(rest + const { offset_after_name("dimension") })?,
            indom: self.file.u32(rest + const { offset_after_name("indom") })?,
            short: self.file.u64(rest + const { offset_after_name("short text") })?,
            long: self.file.u64(rest + const { offset_after_name("help text") })?,
        })
    }

    /// A name stored inline (version 1) or by reference.
    fn name(&self, offset: u64) -> Option<&'a str> {
        let bytes = match self.is_version_1 {
            true => self.file.text(offset, NAME_BYTES),
            false => self.string(self.file.u64(offset)?),
        };
        bytes.and_then(endian::name)
    }

    fn string(&self, offset: u64) -> Option<&'a [u8]> {
        if offset == 0 { None } else { self.file.text(offset, STRING_BYTES) }
    }

    /// Long help text, else the short one, else empty.
    fn help(&self, entry: &MmvMetric) -> String {
        let mut texts =
            [entry.long, entry.short].into_iter().filter_map(|offset| self.string(offset));
        let text = texts.find(|text| !text.is_empty()).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    fn value(&self, start: u64, entry: &MmvMetric) -> MetricValue {
        self.number_or_text(start, entry).unwrap_or(MetricValue::Unknown("text outside the file"))
    }

    fn number_or_text(&self, start: u64, entry: &MmvMetric) -> Option<MetricValue> {
        const UNSET: MetricValue = MetricValue::Unknown("not set by the program");
        let offset = start + const { field_offset(&VALUE, "value") };
        let extra = self.file.i64(start + const { field_offset(&VALUE, "extra") })?;
        let all_ones = self.file.u64(offset)? == u64::MAX;
        let number = match entry.kind {
            STRING => {
                let text = self.string(extra as u64)?;
                let unset = self.sentinel && text.is_empty();
                return Some(if unset {
                    UNSET
                } else {
                    MetricValue::Text(String::from_utf8_lossy(text).into_owned())
                });
            }
            ELAPSED if self.sentinel && all_ones => return Some(UNSET),
            ELAPSED => {
                // In a timed section in progress, `extra` is its start time, negated.
                let inside = if extra < 0 { self.wall_us.saturating_add(extra).max(0) } else { 0 };
                return Some(MetricValue::Counter(NumericValue::Signed(
                    self.file.i64(offset)?.saturating_add(inside),
                )));
            }
            0..=3 if self.sentinel && all_ones => return Some(UNSET),
            0 => NumericValue::Signed(self.file.i32(offset)?.into()),
            1 => NumericValue::Unsigned(self.file.u32(offset)?.into()),
            2 => NumericValue::Signed(self.file.i64(offset)?),
            3 => NumericValue::Unsigned(self.file.u64(offset)?),
            4 => NumericValue::Float(f32::from_bits(self.file.u32(offset)?).into()),
            5 => NumericValue::Float(f64::from_bits(self.file.u64(offset)?)),
            -1 => return Some(MetricValue::Unknown("not supported by the program")),
            _ => return Some(MetricValue::Unknown("of a type that MMV does not have")),
        };
        if let (true, NumericValue::Float(number)) = (self.sentinel, number)
            && number.is_nan()
        {
            return Some(UNSET);
        }
        Some(match entry.semantics {
            // 0 is undefined; PCP's own reader treats it as a counter.
            0 | 1 => MetricValue::Counter(number),
            _ => MetricValue::Gauge(number),
        })
    }
}

const STRING: i32 = 6;
const ELAPSED: i32 = 9;

const NAME: u64 = field_offset(&METRIC_1, "name");
const ITEM_1: u64 = field_offset(&METRIC_1, "item");
const ITEM_2: u64 = field_offset(&METRIC_2, "item");
const EXTERNAL: u64 = field_offset(&INSTANCE_1, "external");

/// Properties shared by both layouts, which the code above relies on.
const _: () = {
    const fn is_same_layout(one: &[EndianField], two: &[EndianField], shift: u64) {
        let mut index = 1;
        while index < one.len() {
            assert!(one[index].1 - two[index].1 == shift && one[index].2 == two[index].2);
            index += 1;
        }
    }
    is_same_layout(&METRIC_1, &METRIC_2, ITEM_1 - ITEM_2);
    assert!(
        field_offset(&METRIC_2, "name") == NAME
            && field_offset(&INSTANCE_2, "external") == EXTERNAL
    );
    assert!(field_offset(&INSTANCE_2, "internal") == field_offset(&INSTANCE_1, "internal"));
};
