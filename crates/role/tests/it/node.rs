//! A node's handling of its roles: settings are read and checked, the intake is in memory.

use std::path::Path;
use std::sync::{Arc, Mutex};

use intake::{Intake, WriteTarget};
use role::settings::{Document, Problems, SettingsCheck, TableRef};
use role::{RoleContext, RoleSettings, RoleTable};

/// Reads and checks a settings file.
pub(crate) fn read(table: RoleTable, text: &str) -> Result<RoleSettings, Problems> {
    let document = Document::parse(text, Path::new("/etc/topdeck"))?;
    let keys: Vec<&str> = table.iter().flat_map(|role| role.keys().iter().copied()).collect();
    let problems = document.unknown_keys(TableRef::ROOT, &keys);
    if !problems.is_empty() {
        return Err(problems);
    }
    let settings = RoleSettings::read(table, &document)?;
    let mut check = SettingsCheck::new(&document);
    settings.validate_settings(&mut check);
    let problems = check.finish();
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// A context over an empty in-memory store, and the logged lines.
pub(crate) fn context() -> (RoleContext, Arc<Mutex<Vec<String>>>) {
    let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
    let settings =
        journal::Settings { buffer_bytes: 1 << 20, segment_bytes: 4 << 20, ..Default::default() };
    let journal =
        journal::Options { is_exclusive: true, has_background_thread: false, ..Default::default() };
    let options = store::Options { has_background_thread: false, journal, ..Default::default() };
    let path = Path::new("/store");
    store::Store::create(&disk, path, &settings).unwrap();
    let home = WriteTarget::Store(Arc::new(store::Store::open(disk, path, &options).unwrap()));
    let settings = intake::Settings { background: false, ..Default::default() };
    let intake = Arc::new(Intake::new(home, settings).unwrap());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&lines);
    let log: intake::LogFn =
        Arc::new(move |_, line: &str| own.lock().unwrap().push(line.to_owned()));
    let data = Path::new("/data").to_owned();
    (RoleContext { intake, data, host: "box".to_owned(), log }, lines)
}
