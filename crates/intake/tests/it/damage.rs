//! Records that the journal loses between their acknowledgement and the store: no more than was damaged, and it is said.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use disk::SimDisk;
use model::Selector;
use store::Grid;

use crate::world::*;

const BATCHES: u64 = 300;
/// Values of each.
const VALUES: u64 = 6;

/// Turns over a bit of the first record in segments that has a text.
fn flip(disk: &SimDisk, text: &[u8]) {
    let files = disk.files().into_iter().map(|(path, _)| path);
    for path in files.filter(|path| path.to_string_lossy().contains("/journal/segments/")) {
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            disk.flip_bit(&path, at as u64, 3);
            return;
        }
    }
    panic!("no segment has the text");
}

/// A sender's series is defined by its first record alone.
#[test]
fn a_flipped_bit_in_a_series_first_record_loses_one_batch_and_is_told() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    stored(&disk, &now, BATCHES);
    flip(&disk, b"latency");
    let (intake, store) = into_store_again(&disk, &now, |_| {});
    let view = store.view().unwrap();
    let series = view.select(&Selector::parse("latency").unwrap());
    let grid = Grid { start: 0, step: 10, columns: 1 };
    let column = view.histograms(&series, grid).unwrap().next().unwrap().unwrap();
    assert_eq!(column.value.count(), (BATCHES - 1) * VALUES);

    let damaged = "1 batches missing in the journal: damaged";
    let stat = store.stat().unwrap();
    assert!(stat.notes.iter().any(|note| note.starts_with(damaged)), "{:?}", stat.notes);
    assert!(stat.gaps.iter().any(|gap| gap.reason.starts_with(damaged)), "{:?}", stat.gaps);

    let audit = intake.audit().unwrap();
    let [of_p, others] = &audit.producers[..] else { panic!("{audit:?}") };
    let (line, rest) = (&of_p.lines[1], &others.lines[1]);
    assert_eq!((&*line.hop, &*rest.hop), ("store", "store"));
    assert_eq!(
        line.why,
        "all that is not among 1 batch that were lost in the journal, whose is not known: see others"
    );
    assert_eq!((rest.stored.missing, rest.lost.len()), (1, 1));
    assert_eq!((&*rest.lost[0].reason, rest.lost[0].lost), ("missing in the journal: damaged", 1));
    assert!(others.is_explained() && of_p.is_explained());
}

/// Taken in, and gone with its process.
fn stored(disk: &SimDisk, now: &Arc<AtomicI64>, batches: u64) {
    let (intake, _store) = into_store(disk, now, |_| {});
    let producer = intake.producer("p");
    for _ in 0..batches {
        let mut writer = intake.writer(WAY);
        write(&mut writer, "a", VALUES);
        intake.take(&producer, writer).unwrap().wait().unwrap();
    }
    intake.keep_books().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].lines[1].why, "all of the journal is in the store");
}
