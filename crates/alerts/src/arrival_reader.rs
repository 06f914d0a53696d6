//! The thread that reads the journal and notes which series got rows.
//!
//! It is a reader without a checkpoint, for which the journal retains no records. Rules that read
//! what it missed are evaluated on schedule.

use std::time::Duration;

use intake::Intake;
use journal::{JournalReader, ReadItem, StartPosition};
use model::{BatchReader, SeriesId};

use crate::arrival_index::ArrivalIndex;
use crate::worker_control::WorkerControl;

/// Timeout of a wait for a record: then whether rules still read series is checked again.
const POLL_TIMEOUT: Duration = Duration::from_millis(200);
/// Pause between these checks while no rule reads series.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// Reader of what is appended from now on.
pub(crate) fn open_journal(intake: &Intake) -> journal::Result<JournalReader> {
    intake.write_target().journal().reader(StartPosition::End)
}

/// Reads until the role stops.
pub(crate) fn read_arrivals(
    mut reader: Option<JournalReader>,
    intake: &Intake,
    index: &ArrivalIndex,
    control: &WorkerControl,
) -> journal::Result<()> {
    while !control.is_stopping() {
        if !index.is_active() {
            reader = None;
            control.wait_stopping(IDLE_PAUSE);
            continue;
        }
        let reader = match &mut reader {
            Some(reader) => reader,
            none => none.insert(open_journal(intake)?),
        };
        if reader.wait(Some(POLL_TIMEOUT))?
            && let Some(ReadItem::Batch(record_batch)) = reader.next()?
        {
            let mut series = Vec::new();
            record_batch.records().for_each(|record| add_series(record.bytes, &mut series));
            index.note(&series);
        }
    }
    Ok(())
}

/// Adds the series of a record, which is one batch of samples. It was checked on append.
fn add_series(record: &[u8], series: &mut Vec<SeriesId>) {
    let Ok(entries) = BatchReader::new(record) else { return };
    for entry in entries {
        let Ok(entry) = entry else { return };
        if entry.starts_group {
            series.push(entry.series.id());
        }
    }
}
