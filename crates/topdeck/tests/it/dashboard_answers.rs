//! Dashboards of Grafana for common exporters: each expression and each query of a variable has the
//! same answer from topdeck as from Prometheus, from the same scrape text.
//!
//! The dashboards of `testdata/dashboards/grafana` are ours, in the shapes of public ones. The
//! answers beside them are those of Prometheus. `make system PART=prometheus` compares with a
//! running Prometheus, and records its answers if `UPDATE_EXPECT` is set.

mod grafana_dashboard;
mod prometheus_process;
mod recorded_answer;
mod scrape_page;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use self::grafana_dashboard::{DashboardQuestion, GrafanaDashboard};
use self::prometheus_process::ScrapingPrometheus;
use self::recorded_answer::{RecordedAnswer, difference};
use self::scrape_page::{END_SECONDS, scrape_page};
use crate::environment::wait_until;
use crate::root;
use crate::serve::client::request;
use crate::serve::server_process::ServerProcess;

const NAMES: [&str; 10] =
    ["go", "jvm", "kafka", "kubernetes-pods", "nginx", "node", "postgres", "red", "redis", "use"];

#[test]
fn grafana_dashboards_answer_as_prometheus_does() {
    let topdeck = topdeck_with_page();
    let (mut wrong, mut compared) = (String::new(), 0);
    for name in NAMES {
        let recorded = read_answers(name);
        let questions = dashboard(name).questions();
        assert_eq!(questions.len(), recorded.len(), "{name}: answers are not those of its queries");
        for question in &questions {
            let expected = &recorded[&question.title];
            let found = topdeck.ask(question);
            compared += 1;
            if let Some(difference) = difference(question, expected, &found) {
                writeln!(wrong, "{name}: {}\n{difference}", question.title).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // 143 expressions, at an instant and over a range, and the variables.
    assert!(compared >= 350, "{compared}");
}

#[test]
#[ignore = "needs TOPDECK_PROMETHEUS, a program: make system PART=prometheus"]
fn prometheus_gives_equal_results_on_grafana_dashboards() {
    let program = std::env::var("TOPDECK_PROMETHEUS").expect("TOPDECK_PROMETHEUS names a program");
    let prometheus = ScrapingPrometheus::start(Path::new(&program), scrape_page());
    let topdeck = topdeck_with_page();
    let (mut wrong, mut empty, mut asked) = (String::new(), 0, 0);
    for name in NAMES {
        let mut answers = BTreeMap::new();
        for question in dashboard(name).questions() {
            let expected = prometheus.ask(&question);
            asked += 1;
            empty += usize::from(expected.is_empty());
            if let Some(difference) = difference(&question, &expected, &topdeck.ask(&question)) {
                writeln!(wrong, "{name}: {}\n{difference}", question.title).unwrap();
            }
            answers.insert(question.title, expected);
        }
        match std::env::var_os("UPDATE_EXPECT") {
            Some(_) => fs::write(answers_path(name), recorded_answer::write_all(&answers)).unwrap(),
            None => assert!(answers == read_answers(name), "{name}: Prometheus answers otherwise"),
        }
    }
    println!("dashboards: {asked} answers, of which {empty} are empty");
    assert!(empty * 20 < asked, "{empty} of {asked} answers of Prometheus are empty");
    assert!(wrong.is_empty(), "{wrong}");
}

fn dir() -> PathBuf {
    root().join("testdata/dashboards/grafana")
}

fn dashboard(name: &str) -> GrafanaDashboard {
    let text = fs::read_to_string(dir().join(format!("{name}.json"))).unwrap();
    GrafanaDashboard::parse(&text)
}

fn answers_path(name: &str) -> PathBuf {
    dir().join(format!("{name}.answers"))
}

fn read_answers(name: &str) -> BTreeMap<String, RecordedAnswer> {
    recorded_answer::read_all(&fs::read_to_string(answers_path(name)).unwrap())
}

/// A topdeck with the scrape text.
struct TopdeckWithPage(ServerProcess);

fn topdeck_with_page() -> TopdeckWithPage {
    // Its own metrics would be among the answers.
    let mut server = ServerProcess::new("serve", "");
    let settings = fs::read_to_string(server.settings()).unwrap();
    let rare = settings.replace("interval = \"1s\"", "interval = \"60s\"");
    fs::write(server.settings(), rare).unwrap();
    server.start();
    let (path, page) = ("/v1/import?format=prometheus", scrape_page());
    let response = request(server.port, "POST", path, &[], page.as_bytes()).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    let topdeck = TopdeckWithPage(server);
    wait_until("the import can be queried", || topdeck.has_page());
    topdeck
}

impl TopdeckWithPage {
    fn has_page(&self) -> bool {
        let path = format!("/api/v1/query?query=count(up)&time={END_SECONDS}");
        self.0.get(&path).text().contains("\"value\"")
    }

    fn ask(&self, question: &DashboardQuestion) -> RecordedAnswer {
        RecordedAnswer::from_response(question, &self.0.get(&question.path).text())
    }
}
