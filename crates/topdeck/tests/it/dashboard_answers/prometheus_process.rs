//! Prometheus as a process that scrapes a text once.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::grafana_dashboard::DashboardQuestion;
use super::recorded_answer::RecordedAnswer;
use super::scrape_page::END_SECONDS;
use crate::environment::{free_port, wait_until};
use crate::serve::client::request;
use crate::serve::server_process::TestDir;

/// Running Prometheus with the text in its database; stopped on drop.
pub(super) struct ScrapingPrometheus {
    child: Child,
    port: u16,
    dir: TestDir,
}

impl ScrapingPrometheus {
    pub(super) fn start(program: &Path, page: String) -> ScrapingPrometheus {
        let (dir, port) = (TestDir::new(), free_port());
        let settings = format!(
            "scrape_configs:\n- job_name: page\n  honor_labels: true\n  honor_timestamps: true\n  \
             scrape_interval: 5s\n  scrape_timeout: 5s\n  static_configs:\n  - targets: ['{}']\n",
            serve_once(page)
        );
        fs::write(dir.path("prometheus.yml"), settings).unwrap();
        let log = File::create(dir.path("log")).unwrap();
        let child = Command::new(program)
            .current_dir(&dir.0)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--log.level=warn", "--storage.tsdb.retention.time=100y"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
        let mut started = ScrapingPrometheus { child, port, dir };
        wait_until("Prometheus has scraped the page", || started.has_page());
        started
    }

    /// The scrape is one commit.
    fn has_page(&mut self) -> bool {
        let ended = self.child.try_wait().unwrap();
        let log = || fs::read_to_string(self.dir.path("log")).unwrap_or_default();
        assert!(ended.is_none(), "Prometheus ended: {}", log());
        let path = format!("/api/v1/query?query=count(up)&time={END_SECONDS}");
        let response = request(self.port, "GET", &path, &[], b"");
        response.is_ok_and(|response| response.text().contains("\"value\""))
    }

    pub(super) fn ask(&self, question: &DashboardQuestion) -> RecordedAnswer {
        let response = request(self.port, "GET", &question.path, &[], b"").unwrap();
        RecordedAnswer::from_response(question, &response.text())
    }
}

impl Drop for ScrapingPrometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a text to the first request, and nothing to others: Prometheus rejects old samples after
/// its own of the first scrape.
fn serve_once(page: String) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut page = Some(page);
        for stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines();
            let _head = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            let body = page.take().unwrap_or_default();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                        Connection: close\r\n";
            let _ = write!(&stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    address
}
