//! A published table is returned with the activity of each process since the previous one.

use std::path::{Path, PathBuf};

use shm::process_table::{CollectionInfo, CollectionMethod, ProcessRow, TableWriter};

use super::{ProcessList, PublishedTable};
use crate::shm_metrics::running_processes::{RunningProcess, RunningProcesses};
use role::{RouteError, RouteQuery};
use serde_json::Value;

/// A directory in memory, removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Option<Dir> {
        let path = Path::new("/dev/shm").join(format!("host-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).ok().map(|()| Dir(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn process(pid: u32, user_ms: u64, rss_bytes: u64) -> ProcessRow {
    let mut comm = [0; 16];
    comm[..4].copy_from_slice(b"shop");
    ProcessRow {
        pid,
        ppid: 1,
        uid: 1000,
        threads: 3,
        start: u64::from(pid),
        comm,
        state: b'S',
        user_ns: user_ms * 1_000_000,
        system_ns: 500_000_000,
        rss_bytes,
        ..ProcessRow::default()
    }
}

fn taken(at_s: u64) -> CollectionInfo {
    let (at_ns, unix_ns) = (at_s * 1_000_000_000, 7_000_000_000 + at_s as i64);
    CollectionInfo {
        started_ns: at_ns,
        unix_ns,
        method: CollectionMethod::Procfs,
        ticks_per_second: 100,
    }
}

#[test]
fn cpu_usage_is_since_the_previous_table() {
    let Some(dir) = Dir::new("processes") else { return };
    let list = ProcessList::default();
    let ask = |parameters: &[(&str, &str)]| -> Result<Value, RouteError> {
        let owned = parameters.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let json = list.answer(&RouteQuery::new(owned.collect()))?;
        Ok(serde_json::from_str(&json.to_string()).unwrap())
    };
    let reason = || {
        let told = ask(&[]).unwrap();
        assert_eq!((&told["host"], &told["total"]), (&Value::Null, &0.into()));
        told["reason"].as_str().unwrap().to_owned()
    };
    let off = reason();
    assert!(off.contains("set processes = true in [host]"), "{off}");
    let live = RunningProcesses::default();
    list.publish(Some(PublishedTable {
        host: "box".to_owned(),
        dir: Some(dir.0.clone()),
        live: live.clone(),
    }));
    let missing = reason();
    assert!(missing.starts_with("the process table of this host cannot be read: "), "{missing}");

    let mut writer = TableWriter::new(&dir.0).unwrap();
    writer.publish(&taken(10), &[process(2, 0, 100), process(3, 1_000, 50)]).unwrap();
    let first = ask(&[]).unwrap();
    assert_eq!(first["interval_seconds"], Value::Null);
    assert_eq!(first["processes"][0]["cpu_cores"], Value::Null);
    // Two seconds later: one process used a whole CPU, one is new, one was idle.
    let rows = [process(2, 0, 100), process(3, 3_000, 50), process(4, 100, 70)];
    writer.publish(&taken(12), &rows).unwrap();
    let told = ask(&[]).unwrap();
    assert_eq!((&told["host"], &told["source"]), (&"box".into(), &"procfs".into()));
    assert_eq!((&told["interval_seconds"], &told["total"]), (&2.0.into(), &3.into()));
    let busy: Vec<_> = (0..3)
        .map(|at| {
            let one = &told["processes"][at];
            (one["pid"].as_u64().unwrap(), one["cpu_cores"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(busy, [(3, 1.0), (4, 0.3), (2, 0.0)]);
    let expected = serde_json::json!({
        "pid": 3, "ppid": 1, "uid": 1000, "name": "shop", "state": "S", "threads": 3,
        "cpu_cores": 1.0, "cpu_seconds": 3.5, "resident_bytes": 50, "program": null
    });
    assert_eq!(told["processes"][0], expected);
    // Stored series have no PID: the list tells which ones are of a process.
    let running = |generation: Option<&str>| RunningProcess {
        program: "my shop".to_owned(),
        format: String::new(),
        generation: generation.map(str::to_owned),
    };
    live.set([(3, running(Some("2"))), (4, running(None))].into());
    let told = ask(&[]).unwrap();
    let found: Vec<&Value> = (0..3).map(|at| &told["processes"][at]["program"]).collect();
    let expected = |generation: Value| serde_json::json!({"process": "my shop", "generation": generation, "format": ""});
    assert_eq!(found, [&expected("2".into()), &expected(Value::Null), &Value::Null]);
    let one = ask(&[("limit", "1")]).unwrap();
    assert_eq!((&one["total"], one["processes"].as_array().unwrap().len()), (&3.into(), 1));
    let error = ask(&[("limit", "many")]).unwrap_err();
    assert!(matches!(error, RouteError::Parameter { name, .. } if name == "limit"));
}
