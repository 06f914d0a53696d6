//! State of a server: what needs action, as the page's view Status has it, and what it holds.

use render::number_formatter::NumberFormatter;
use render::terminal::{Terminal, TextStyle};
use render::text::{escape_control, plural};
use render::time::duration_text;
use serde_json::Value;

/// Something that an operator should do.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusProblem {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub action: String,
}

fn problem(what: String, action: impl Into<String>) -> StatusProblem {
    StatusProblem { what: escape_control(&what), action: escape_control(&action.into()) }
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or("")
}

fn count(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// What needs action by `/v1/status`: first what loses or rejects data, then what is missing.
pub fn status_problems(status: &Value) -> Vec<StatusProblem> {
    let mut problems = storage_problems(status);
    problems.extend(process_problems(status));
    problems.extend(list(&status["alerts"], "problems").iter().map(|found| {
        let found = found.as_str().unwrap_or("");
        let action = "Repair the file, and check it with topdeck rules check FILE. SIGHUP reads it \
                      again.";
        let end = if found.ends_with(['.', '?']) { "" } else { "." };
        problem(format!("Problem of a rule file: {found}{end}"), action)
    }));
    problems.extend(source_problems(status));
    problems
}

fn storage_problems(status: &Value) -> Vec<StatusProblem> {
    let journal = &status["journal"];
    let mut problems = Vec::new();
    if journal["failed"] == true {
        problems.push(problem(
            "The journal stopped after a disk error: nothing is acknowledged.".to_owned(),
            "Repair the disk, then restart topdeck. The log has the error.",
        ));
    }
    if let Some(reason) = journal["full_reason"].as_str() {
        // Only a limit can be raised, which the reason names.
        let raise =
            if reason.contains("limit") { ", or raise the limit that is named" } else { "" };
        let action = format!("Free disk space{raise}. Senders retry meanwhile.");
        problems.push(problem(format!("New data is rejected: {reason}."), action));
    } else if let Some(free) = status["data"]["free_bytes"].as_u64()
        && free < count(journal, "next_segment_bytes")
    {
        let needed = bytes_text(count(journal, "next_segment_bytes"));
        let dir = text(&status["data"], "dir");
        problems.push(problem(
            format!(
                "Disk nearly full: {} free, and the journal's next file takes {needed}.",
                bytes_text(free)
            ),
            format!("Free disk space of {dir}. New data is rejected once the file is needed."),
        ));
    }
    for one in list(status, "damage").iter().filter(|one| one["acknowledged"] != true) {
        let lost = plural(count(one, "records"), "record", "records");
        let what = format!("Damaged: {}, {lost} lost.", text(one, "location"));
        problems.push(problem(what, format!("{}.", text(one, "remedy"))));
    }
    for one in list(journal, "subscribers").iter().filter(|one| one["damaged"] == true) {
        let name = text(one, "name");
        let what = format!("One copy of the checkpoint of subscriber {name} is damaged.");
        problems.push(problem(what, "Check the disk; the other copy is in use."));
    }
    if let [first, ..] = list(journal, "gaps") {
        let lost = list(journal, "gaps").iter().map(|gap| count(gap, "batches")).sum();
        let what = format!("The journal has gaps: {} lost.", plural(lost, "batch", "batches"));
        let reason = text(first, "reason");
        problems.push(problem(what, format!("Reason: {reason}. topdeck audit names the data.")));
    }
    problems
}

fn bytes_text(bytes: u64) -> String {
    NumberFormatter::new(Some("B")).estimate(bytes as f64)
}

fn process_problems(status: &Value) -> Vec<StatusProblem> {
    let mut problems = Vec::new();
    for one in list(status, "threads").iter().filter(|one| count(one, "down") > 0) {
        let panics = plural(count(one, "panics"), "panic", "panics");
        let what = format!("Thread {} is down after {panics}.", text(one, "name"));
        let last = one["last_panic"].as_str().unwrap_or("see the log");
        problems.push(problem(what, format!("Report the panic, which is a bug: {last}.")));
    }
    for one in list(status, "quarantined").iter().filter(|one| one["acknowledged"] != true) {
        let what = format!("Skipped: {}, {}.", text(one, "input"), text(one, "reason"));
        let action = "Report the panic, which is a bug; the input stays on disk.";
        problems.push(problem(what, action));
    }
    if let Some(error) = status["tokens_error"].as_str() {
        let action = "Repair the file; the previous tokens stay in force.";
        problems.push(problem(format!("Tokens are not reloaded: {error}."), action));
    }
    if let Some(error) = status["config"]["error"].as_str() {
        let action = "Repair the file, check it with topdeck check-config FILE, and send SIGHUP; \
                      what is not applied stays as it was.";
        problems.push(problem(format!("The settings are not reloaded: {error}."), action));
    }
    problems
}

fn source_problems(status: &Value) -> Vec<StatusProblem> {
    let now = status["now_ns"].as_i64().unwrap_or(0);
    let since = |at: i64| whole_seconds(now.saturating_sub(at).max(0));
    let mut problems = Vec::new();
    for one in list(status, "targets").iter().filter(|one| one["state"] == "down") {
        let down = match one["since_ns"].as_i64() {
            Some(at) => format!("has been down for {}", since(at)),
            None => "is down".to_owned(),
        };
        let action = match one["last_error"]["reason"].as_str() {
            Some(reason) => format!("Reason: {reason}."),
            None => "topdeck targets lists it.".to_owned(),
        };
        let (kind, name) = (text(one, "kind"), text(one, "name"));
        problems.push(problem(format!("Target {kind} {name} {down}."), action));
    }
    for one in list(status, "sources").iter().filter(|one| one["state"] == "absent") {
        let last = since(one["last_ns"].as_i64().unwrap_or(now));
        let what = format!("Source {} has sent nothing for {last}.", text(one, "name"));
        let usual = one["interval_ns"].as_i64().map_or_else(String::new, |interval| {
            format!("It usually sends every {}. ", duration_text(interval))
        });
        let action = "Check whether the sender runs and reaches this server.";
        problems.push(problem(what, format!("{usual}{action}")));
    }
    for one in list(status, "remotes").iter().filter(|one| !one["last_error"].is_null()) {
        let waiting = plural(count(one, "lag"), "record waits", "records wait");
        let name = text(one, "name");
        let what = format!("Remote {name} does not accept data; {waiting} for it.");
        let reason = text(&one["last_error"], "reason");
        problems.push(problem(what, format!("Reason: {reason} ({}).", text(one, "url"))));
    }
    problems
}

fn whole_seconds(ns: i64) -> String {
    duration_text(ns - ns.rem_euclid(1_000_000_000))
}

/// What needs action, then what the server holds.
pub fn status_text(status: &Value, problems: &[StatusProblem], terminal: &Terminal) -> String {
    let mut lines = match problems.len() as u64 {
        0 => "healthy: nothing needs action\n".to_owned(),
        count => format!("{}\n", plural(count, "problem needs action", "problems need action")),
    };
    for StatusProblem { what, action } in problems {
        let what = terminal.paint(TextStyle::Heading, what);
        lines.push_str(&format!("  {what}\n    {action}\n"));
    }
    let bytes =
        |value: &Value| NumberFormatter::new(Some("B")).estimate(value.as_f64().unwrap_or(0.0));
    let uptime = status["now_ns"].as_i64().zip(status["start_time_ns"].as_i64());
    let uptime = uptime.map_or_else(String::new, |(now, start)| whole_seconds(now - start));
    let mut fact = |name: &str, value: String| lines.push_str(&format!("{name:<12}{value}\n"));
    fact("uptime", format!("{uptime}, version {}", escape_control(text(status, "version"))));
    let (data, store, journal) = (&status["data"], &status["store"], &status["journal"]);
    if !data["free_bytes"].is_null() {
        let (free, total) = (bytes(&data["free_bytes"]), bytes(&data["total_bytes"]));
        fact("disk free", format!("{free} of {total}, {}", escape_control(text(data, "dir"))));
    }
    if !store.is_null() {
        fact("series", plural(count(store, "series"), "series", "series"));
        let parts = plural(count(store, "parts"), "file", "files");
        fact("stored", format!("{} in {parts}", bytes(&store["part_bytes"])));
        fact("in memory", bytes(&store["head_bytes"]));
    }
    let segments = plural(count(journal, "segments"), "file", "files");
    fact("journal", format!("{} in {segments}", bytes(&journal["segment_bytes"])));
    lines
}

#[cfg(test)]
mod tests {
    use render::terminal::ColourDepth;
    use serde_json::json;

    use super::*;

    fn text_of(status: &Value) -> String {
        let terminal = Terminal { colour_depth: ColourDepth::None, ..Terminal::new(false) };
        status_text(status, &status_problems(status), &terminal)
    }

    fn status() -> Value {
        let minute = 60_000_000_000_i64;
        json!({
            "version": "0.1.0", "now_ns": 90 * minute, "start_time_ns": 0, "store": null,
            "journal": {"segments": 1, "segment_bytes": 65_536, "failed": false},
            "threads": [{"name": "ledger", "down": 0, "panics": 3}],
            "targets": [{"kind": "scrape", "name": "node", "state": "up"}],
        })
    }

    /// `topdeck status` was no command; whether a server is well was only on the page.
    #[test]
    fn status_begins_with_what_needs_action() {
        expect_test::expect![[r"
            healthy: nothing needs action
            uptime      1 h 30 min, version 0.1.0
            journal     65.54 kB in 1 file
        "]]
        .assert_eq(&text_of(&status()));
        let mut broken = status();
        broken["journal"]["full_reason"] = "no space left on the disk".into();
        let minute = 60_000_000_000_i64;
        broken["targets"][0] = json!({
            "kind": "scrape", "name": "node", "state": "down", "since_ns": 85 * minute,
            "last_error": {"reason": "refused"},
        });
        broken["sources"] = json!([
            {"name": "otlp shop", "state": "absent", "last_ns": 88 * minute,
             "interval_ns": 10_000_000_000_i64},
        ]);
        broken["damage"] =
            json!([{"location": "records 3..4", "records": 1, "acknowledged": true}]);
        expect_test::expect![[r"
            3 problems need action
              New data is rejected: no space left on the disk.
                Free disk space. Senders retry meanwhile.
              Target scrape node has been down for 5 min.
                Reason: refused.
              Source otlp shop has sent nothing for 2 min.
                It usually sends every 10 s. Check whether the sender runs and reaches this server.
            uptime      1 h 30 min, version 0.1.0
            journal     65.54 kB in 1 file
        "]]
        .assert_eq(&text_of(&broken));
    }

    /// After a failed SIGHUP the status was "healthy: nothing needs action".
    #[test]
    fn a_failed_reload_needs_action() {
        let mut failed = status();
        failed["config"] = json!({"loaded_ns": 0, "error": "unknown key `intervall`"});
        let problems = status_problems(&failed);
        assert_eq!(problems[0].what, "The settings are not reloaded: unknown key `intervall`.");
        failed["config"]["error"] = Value::Null;
        assert_eq!(status_problems(&failed), []);
    }

    /// With 0 B free the status was "healthy" until the journal needed a file.
    #[test]
    fn a_disk_without_room_for_the_next_file_of_the_journal_needs_action() {
        let mut full = status();
        full["data"] = json!({"dir": "/data", "free_bytes": 0, "total_bytes": 25_000_000});
        full["journal"]["next_segment_bytes"] = 16_000_000.into();
        let [StatusProblem { what, action }] = &status_problems(&full)[..] else {
            panic!("{:?}", status_problems(&full))
        };
        assert_eq!(what, "Disk nearly full: 0 B free, and the journal's next file takes 16.00 MB.");
        assert!(action.starts_with("Free disk space of /data. "), "{action}");
        full["data"]["free_bytes"] = 16_000_000.into();
        assert_eq!(status_problems(&full), []);
        full["journal"]["full_reason"] = "segments use 9 bytes, limit 8".into();
        let action = &status_problems(&full)[0].action;
        assert!(action.contains("raise the limit"), "{action}");
    }

    #[test]
    fn a_question_ends_the_problem_of_a_rule_file() {
        let of = |text: &str| {
            let problems = status_problems(&json!({"alerts": {"problems": [text]}}));
            problems[0].what.clone()
        };
        let expected = "Problem of a rule file: did you mean \"expr\"?";
        assert_eq!(of("did you mean \"expr\"?"), expected);
        assert_eq!(of("no rules"), "Problem of a rule file: no rules.");
    }
}
