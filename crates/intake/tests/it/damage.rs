//! Records that the journal loses between acknowledgement and store: only damaged records are lost,
//! and the loss is reported.

use std::path::Path;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use decode::SeriesSink as _;
use disk::Disk;
use intake::{Intake, Supervisor};
use journal::Journal;
use model::Selector;
use sim::SimDisk;
use store::{Store, TimeGrid};

use crate::fixture::*;

const BATCHES: u64 = 300;
/// Values per batch.
const VALUES: u64 = 6;

/// Flips a bit of the first record that contains a text.
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

/// Only a sender's first record defines its series.
#[test]
fn flipped_bit_in_a_series_definition_loses_one_batch() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, BATCHES);
    flip(&disk, b"latency");
    let (intake, store) = reopen_store_intake(&disk, &now, |_| {});
    let view = store.view().unwrap();
    let series = view.select(&Selector::parse("latency").unwrap());
    let grid = TimeGrid { start: 0, step: 10, columns: 1 };
    let column = view.histograms(&series, grid).unwrap().next().unwrap().unwrap();
    assert_eq!(column.value.count(), (BATCHES - 1) * VALUES);

    let damaged = "1 batches lost in the journal: damaged";
    let stat = store.stat().unwrap();
    assert!(stat.warnings.iter().any(|note| note.starts_with(damaged)), "{:?}", stat.warnings);
    assert!(stat.gaps.iter().any(|gap| gap.reason.starts_with(damaged)), "{:?}", stat.gaps);

    // The audit names the batch's producer and the number of lost values.
    let check = |intake: &Intake| {
        let audit = intake.audit().unwrap();
        let [of_p] = &audit.producers[..] else { panic!("{audit:?}") };
        let line = &of_p.stages[1];
        assert_eq!((line.received.values, line.stored.values), (1_800, 1_794));
        assert_eq!((line.discrepancy, line.unknown_batches), (6, 0));
        assert_eq!((line.stored.batches, line.stored.missing), (BATCHES - 1, 1));
        let expected = "1 batch with 6 values damaged or dropped in the journal after they were \
                        counted and before the store read them: their values are not in the store";
        assert_eq!((&*line.stage, &*line.reason), ("store", expected));
        let [loss] = &line.losses[..] else { panic!("{line:?}") };
        assert_eq!((&*loss.reason, loss.samples_lost), ("missing in the journal: damaged", 1));
        assert!(of_p.is_reconciled());
    };
    check(&intake);
    // Also later, and after a restart.
    let producer = intake.producer("p");
    for _ in 0..10 {
        let mut writer = intake.writer(KEY_ENCODING);
        writer.gap(model::Gap {
            start: 0,
            end: 1,
            producer: None,
            lost: None,
            reason: "other batches".to_owned(),
        });
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    }
    intake.checkpoint_ledger().unwrap();
    store.flush().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].stages[1].discrepancy, 6);
    drop((intake, view, store));
    let (intake, _store) = reopen_store_intake(&disk, &now, |_| {});
    let line = &intake.audit().unwrap().producers[0].stages[1];
    assert_eq!((line.discrepancy, line.unknown_batches), (6, 0), "{line:?}");
}

#[test]
fn of_a_damaged_batch_that_no_ledger_has_the_audit_says_that_its_values_are_unknown() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, BATCHES);
    flip(&disk, b"latency");
    disk.process().remove(&Path::new(DIR).join("journal/ledgers/recent.batches")).unwrap();
    let (intake, _store) = reopen_store_intake(&disk, &now, |_| {});
    let audit = intake.audit().unwrap();
    let [of_p, others] = &audit.producers[..] else { panic!("{audit:?}") };
    let (line, rest) = (&of_p.stages[1], &others.stages[1]);
    assert_eq!((&*line.stage, &*rest.stage), ("store", "store"));
    assert_eq!(
        line.reason,
        "the store has all records but those of 1 batch lost in the journal, of unknown \
         producers: see others"
    );
    assert_eq!((rest.stored.missing, rest.unknown_batches, rest.losses.len()), (1, 1, 1));
    assert_eq!(
        (&*rest.losses[0].reason, rest.losses[0].samples_lost),
        ("missing in the journal: damaged", 1)
    );
    let unknown = "; producers and number of values of 1 batch unknown";
    assert!(rest.reason.contains("unknown number of values") && rest.reason.ends_with(unknown));
    assert!(others.is_reconciled() && of_p.is_reconciled());
}

#[test]
fn damage_that_a_reader_meets_is_reported_once_with_what_to_do() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, 3);
    flip(&disk, b"latency");
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let supervisor = Supervisor::new(journal::supervisor::SupervisorSettings {
        log: Some(Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))),
        ..Default::default()
    });
    let set = |options: &mut store::Options| options.journal.supervisor = supervisor.clone();
    let (intake, _store) = reopen_store_intake(&disk, &now, set);
    intake.audit().unwrap();
    let [report] = &supervisor.damage()[..] else { panic!("{:?}", supervisor.damage()) };
    assert_eq!((&*report.location, report.records), ("records 0..1 of the journal", 1));
    let expected = "cannot read records 0..1 of the journal: damaged; `topdeck audit` reports the \
                    loss; check the disk, stop topdeck and run \
                    `topdeck journal repair /data/store/journal`";
    assert_eq!(*log.lock().unwrap(), [expected]);
    assert_eq!(supervisor.damaged_records_total(), 1);
}

/// Batches that were accepted by a process that has ended.
fn store_batches(disk: &SimDisk, now: &Arc<AtomicI64>, batches: u64) {
    let (intake, _store) = new_store_intake(disk, now, |_| {});
    let producer = intake.producer("p");
    for _ in 0..batches {
        let mut writer = intake.writer(KEY_ENCODING);
        write(&mut writer, "a", VALUES);
        intake.append(&producer, writer).unwrap().wait_durable().unwrap();
    }
    intake.checkpoint_ledger().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].stages[1].reason, "the store has all records of the journal");
}

#[test]
fn store_without_journal_file_starts_from_its_segments() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, 3);
    let lost = Path::new(DIR).join("journal/journal");
    disk.process().remove(&lost).unwrap();
    // Without settings, the message names the repair command.
    let process: Arc<dyn Disk> = Arc::new(disk.process());
    let options = store::Options { has_background_thread: false, ..store::Options::default() };
    let error = Store::open(Arc::clone(&process), Path::new(DIR), &options).unwrap_err();
    assert!(error.to_string().contains("`topdeck journal repair`"), "{error}");
    drop(process);
    for settings in [Some(journal_settings()), None] {
        let set = |options: &mut store::Options| options.journal.settings = settings;
        let (intake, store) = reopen_store_intake(&disk, &now, set);
        assert_eq!(store.journal().stat().unwrap().settings, journal_settings());
        let is_told = store
            .stat()
            .unwrap()
            .warnings
            .iter()
            .any(|note| note.contains("rebuilt from the segments"));
        assert_eq!(is_told, settings.is_some());
        let audit = intake.audit().unwrap();
        assert_eq!(audit.producers[0].stages[1].stored.values, 3 * VALUES);
        assert!(audit.producers[0].is_reconciled());
    }
}

#[test]
fn journal_without_its_file_is_not_recreated() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, 1);
    let dir = Path::new(DIR).join("journal");
    let process = disk.process();
    process.remove(&dir.join("journal")).unwrap();
    let made = Journal::create(&process, &dir, 8, 0, &journal_settings());
    assert!(matches!(made, Err(journal::Error::AlreadyExists { .. })), "{made:?}");
}

#[test]
fn store_without_manifest_opens_from_the_copy() {
    let (disk, now) = (SimDisk::new(1), Arc::default());
    store_batches(&disk, &now, 3);
    let process: Arc<dyn Disk> = Arc::new(disk.process());
    for name in ["manifest", "manifest.copy"] {
        process.remove(&Path::new(DIR).join(name)).unwrap();
        assert!(Store::exists(&process, Path::new(DIR)).unwrap(), "{name}");
        let (intake, store) = reopen_store_intake(&disk, &now, |_| {});
        let notes = store.stat().unwrap().warnings;
        assert!(notes.iter().any(|note| note.contains("manifest")), "{notes:?}");
        assert_eq!(intake.audit().unwrap().producers[0].stages[1].stored.values, 3 * VALUES);
    }
}
