//! What must hold for any bytes at all: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzzed` repeats the checks on inputs that once broke something.

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, Check); 1] = [("process_table", process_table)];

/// A table has no more rows than bytes, and each can be shown.
fn process_table(bytes: &[u8]) {
    let Ok(table) = shm::table::Table::parse(bytes) else { return };
    assert!(table.processes.len() * shm::table::ROW_BYTES <= bytes.len());
    assert!(table.taken.ticks_per_second > 0 && table.generation > 0);
    table.processes.iter().for_each(|process| drop(process.name()));
}
