//! Detected ports: a directory stands for /proc.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use observe::{CaptureSettings, PacketSource};
use wire::{CaptureError, CapturedPacket, RingStatistics};

use crate::conversation::{HttpConnection, PORT};
use crate::fixture::{ListedPacket, WireFixture, wait};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const PERIOD: Duration = Duration::from_millis(2);

struct ProcDirectory(PathBuf);

impl ProcDirectory {
    fn new() -> ProcDirectory {
        let name = format!("observe-proc-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(path.join("net")).unwrap();
        fs::write(path.join("net/tcp6"), "  sl\n").unwrap();
        ProcDirectory(path)
    }

    /// The program listens on the port, and on nothing else.
    fn listen(&self, comm: &str, port: u16) {
        let process = self.0.join(port.to_string());
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::write(process.join("comm"), comm).unwrap();
        let _ = symlink(format!("socket:[{port}]"), process.join("fd/3"));
        let line = format!("0: 00000000:{port:04X} 0:0 0A 0:0 00:0 0 0 0 {port} 1\n");
        // As one: the detection reads it at any time.
        fs::write(self.0.join("net/new"), format!("  sl\n{line}")).unwrap();
        fs::rename(self.0.join("net/new"), self.0.join("net/tcp")).unwrap();
    }
}

impl Drop for ProcDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns its packets when their port was set.
struct FilteredPackets {
    packets: Vec<ListedPacket>,
    is_open: Arc<AtomicBool>,
    was_read: Arc<AtomicBool>,
}

impl PacketSource for FilteredPackets {
    fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        if !self.is_open.load(Ordering::SeqCst) {
            std::thread::sleep(timeout.min(PERIOD));
            return Ok(false);
        }
        self.packets.drain(..).for_each(|packet| each(&packet.captured()));
        self.was_read.store(true, Ordering::SeqCst);
        Ok(false)
    }

    fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        Ok(RingStatistics::default())
    }

    fn set_ports(&mut self, ports: &[u16]) -> Result<(), CaptureError> {
        self.is_open.fetch_or(ports.contains(&PORT), Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_port_that_listens_later_is_observed_without_a_new_capture() {
    let (fixture, proc) = (WireFixture::new(Duration::from_secs(10)), ProcDirectory::new());
    proc.listen("redis-server", 6390);
    let mut connection = HttpConnection::new(40_000, START);
    connection.request(START + SECOND, "/items");
    connection.response(START + SECOND + 5_000, "200 OK");
    let (is_open, was_read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let source = FilteredPackets {
        packets: connection.into_packets(),
        is_open: Arc::clone(&is_open),
        was_read: Arc::clone(&was_read),
    };
    let keys = "protocols = []\nservices = ['1/http']";
    let mut settings = CaptureSettings::with_keys("box", keys).unwrap();
    settings.detect_ports_in(&proc.0, PERIOD);
    let capture = fixture.capture_with(&settings, START, Box::new(source));
    assert!(!is_open.load(Ordering::SeqCst));
    // It is a default port of HTTP: the program tells.
    proc.listen("postgres", PORT);
    wait("the port is detected", || was_read.load(Ordering::SeqCst));
    capture.stop().unwrap();
    let rows = fixture.contents();
    let last = *rows.ends().last().unwrap();
    let packets = |protocol| {
        let named = rows.rows.iter().filter(|(series, _)| {
            series.name() == "wire_packets_total" && series.label("protocol") == Some(protocol)
        });
        named.count()
    };
    assert!(packets("postgres") > 0 && packets("http") == 0);
    assert_eq!(rows.number_at(last, "wire_packets_total", &[("service", "10.0.0.2:8080")]), 5.0);
}
