//! Properties of arbitrary bytes: one check per fuzz target, by name. `fuzz/` includes this file by
//! path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use ::model::{
    Batch, BatchWriter, ForwardRequest, ForwardRequestWriter, Sample, Selector, Series, SeriesId,
};

/// A check; panics on failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 4] = [
    ("batch", batch),
    ("forward request", forward_request),
    ("selector", selector),
    ("store_chunk", store_chunk),
];

/// A valid batch can be read to its end, and a writer accepts its samples of series with known
/// keys.
fn batch(bytes: &[u8]) {
    let Ok(batch) = Batch::decode(bytes.to_owned()) else { return };
    assert_eq!(batch.bytes(), bytes);
    let mut reader = batch.read();
    let (mut samples, mut again) = (0, BatchWriter::default());
    for entry in reader.by_ref() {
        let entry = entry.expect("BUG: it was checked");
        let value = entry.decode().expect("BUG: it was checked");
        assert!(entry.start <= entry.end);
        samples += 1;
        if let ::model::BatchSeries::Key(canonical_key) = entry.series {
            let series = Series::from_canonical_key(canonical_key).expect("BUG: it was checked");
            assert_eq!(
                series.id(),
                SeriesId::from_canonical_key(canonical_key),
                "one series, one id"
            );
            again.series(&series);
            again.sample(&Sample { start: entry.start, end: entry.end, value }).unwrap();
        }
    }
    assert_eq!(samples, batch.samples());
    reader.gaps().iter().for_each(|gap| again.gap(gap.clone()));
    // With keys it has the same samples, and none is named by id.
    let mut canonical_key = Series::new("a", ::model::SeriesKind::Gauge).canonical_key();
    for kind in [0, 1, 2, 3] {
        canonical_key[0] = kind;
        let Ok(whole) = batch.with_canonical_keys(&mut |_| Some(canonical_key.clone())) else {
            continue;
        };
        assert_eq!(Batch::decode(whole.bytes().to_owned()), Ok(whole.clone()));
        assert_eq!(whole.samples(), batch.samples());
        assert_eq!(whole.with_canonical_keys(&mut |_| None), Ok(whole));
    }
    let again = again.finish();
    assert_eq!(Batch::decode(again.bytes().to_owned()), Ok(again));
}

/// A parsed request round-trips. Also tested below its last checksum, which a fuzzer cannot
/// produce.
fn forward_request(bytes: &[u8]) {
    let _ = ForwardRequest::decode(bytes);
    let mut sealed = bytes.to_owned();
    sealed.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let Ok(request) = ForwardRequest::decode(&sealed) else { return };
    let mut again = ForwardRequestWriter::new(request.journal);
    request.entries.iter().for_each(|&(sequence, batch)| again.push(sequence, batch));
    assert_eq!(again.finish(), sealed);
}

/// The text form of a parsed selector parses to the same selector.
fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(selector) = Selector::parse(text) else { return };
    let shown = selector.to_string();
    // The text form may be longer than the input, and than the limit.
    if shown.len() <= ::model::selector::LENGTH_MAX {
        let again = Selector::parse(&shown);
        assert_eq!(again.as_ref(), Ok(&selector), "{text:?} is shown as {shown:?}");
    }
}

/// The first byte selects a parser, the rest is its input.
fn store_chunk(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 3 {
        // Longer texts could compress so well that they alone exceed the fuzzer's memory limit.
        0 if bytes.len() <= 1024 => drop(store::fuzzing::chunk(bytes)),
        0 => {}
        1 => drop(store::fuzzing::manifest(bytes)),
        _ => drop(store::fuzzing::trace_part(bytes)),
    }
}
