//! The role in a node: a capture that cannot start is an error of the role alone.

use std::path::Path;
use std::sync::Arc;

use observe::WireRole;
use role::json::Json;
use role::settings::Document;
use role::{Role, RoleContext};

use crate::fixture::{self, WireFixture};

fn context(fixture: &WireFixture) -> RoleContext {
    RoleContext {
        intake: Arc::clone(&fixture.intake),
        data: std::env::temp_dir(),
        host: "box".to_owned(),
        log: Arc::new(|_, _| {}),
    }
}

fn read(text: &str) -> <WireRole as Role>::Settings {
    WireRole::read(&Document::parse(text, Path::new(".")).unwrap()).unwrap()
}

fn has_gauge(fixture: &WireFixture) -> bool {
    let all = fixture.intake.meter().snapshot();
    all.iter().any(|metric| metric.name == "topdeck_wire_capturing")
}

fn status(role: &WireRole) -> Json {
    role.status()[0].read()
}

#[test]
fn without_the_table_nothing_is_captured() {
    let fixture = WireFixture::new(std::time::Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let settings = read("");
        assert!(!WireRole::buffers_in_memory(&settings));
        let role = WireRole::start(&settings, &context(&fixture)).unwrap();
        assert_eq!((role.log_lines(), status(&role)), (Vec::new(), Json::Null));
        assert!(!has_gauge(&fixture));
        role.stop().await.unwrap();
    });
}

#[test]
fn a_capture_that_cannot_start_is_reported_with_the_remedy_and_tried_again() {
    let fixture = WireFixture::new(std::time::Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let settings = read("[wire]\ninterfaces = ['nosuchlink']");
        let context = context(&fixture);
        assert!(WireRole::buffers_in_memory(&settings));
        let mut role = WireRole::start(&settings, &context).unwrap();
        let remedies = ["; `ip link` lists the interfaces", "; run as root, or grant CAP_NET_RAW"];
        let [line] = &role.log_lines()[..] else { panic!("{:?}", role.log_lines()) };
        assert!(line.starts_with("wire: cannot capture "), "{line}");
        assert!(remedies.iter().any(|remedy| line.contains(remedy)), "{line}");
        let Json::Object(fields) = status(&role) else { panic!("{:?}", status(&role)) };
        assert_eq!(fields[0], ("capturing", Json::Bool(false)));
        assert_eq!(fields[1], ("error", Json::Text(line["wire: ".len()..].to_owned())));
        assert_eq!(role.reload(&settings, &context).await.unwrap(), std::slice::from_ref(line));
        assert!(has_gauge(&fixture));
        // Nothing is captured that could be reported.
        let ends = "[wire]\ninterfaces = ['nosuchlink']\n[wire_ends]\nreport_to = 'http://[::1]:1'";
        assert_eq!(role.reload(&read(ends), &context).await.unwrap(), std::slice::from_ref(line));
        let lines = role.reload(&read(""), &context).await.unwrap();
        assert_eq!(lines, ["wire: the capture has stopped"]);
        assert!(!has_gauge(&fixture), "the table was removed");
        role.stop().await.unwrap();
    });
}

#[test]
fn a_library_that_cannot_be_read_stops_no_capture_at_a_reload() {
    let fixture = WireFixture::new(std::time::Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let settings = read("[wire]\ninterfaces = ['lo']\ntls = ['/nowhere/libssl.so']");
        let context = context(&fixture);
        let mut role = WireRole::start(&settings, &context).unwrap();
        let [line] = &role.log_lines()[..] else { panic!("{:?}", role.log_lines()) };
        if line.contains("cannot capture") {
            println!("skipped: {line}");
            return role.stop().await.unwrap();
        }
        for _ in 0..2 {
            // The file is looked for in a thread of its own.
            fixture::wait("the error is in the status", || {
                format!("{:?}", status(&role)).contains("cannot read TLS at /nowhere/libssl.so")
            });
            let lines = role.reload(&settings, &context).await.unwrap();
            assert_eq!(lines, ["wire: looking for TLS libraries again"], "and nothing else");
        }
        role.stop().await.unwrap();
    });
}
