//! Settings of notifications: every problem with its line, and Alertmanager's file.

use std::path::{Path, PathBuf};

use notify::NotifySettings;
use toml::de::DeTable;

const CONTACTS: &str = "\
[[contact]]
name = 'mails'
kind = 'ntfy'
topic = 'a'

[[contact]]
name = 'pager'
kind = 'ntfy'
topic = 'b'

[[contact]]
name = 'beat'
kind = 'heartbeat'
url = 'http://127.0.0.1/'

";

fn read(text: &str, dir: &Path) -> Result<NotifySettings, Vec<String>> {
    let root = DeTable::parse(text).unwrap().into_inner();
    let line = |byte: usize| text[..byte].matches('\n').count() + 1;
    NotifySettings::read(&root, dir).map_err(|problems| {
        problems.iter().map(|found| format!("{}: {}", line(found.position), found.what)).collect()
    })
}

/// Problems of settings below [`CONTACTS`]; lines are counted below them.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let before = CONTACTS.matches('\n').count() as i64;
    let problems = read(&format!("{CONTACTS}{text}"), Path::new("/")).err().unwrap_or_default();
    let relative = |problem: &String| {
        let (line, what) = problem.split_once(": ").unwrap();
        format!("{}: {what}", line.parse::<i64>().unwrap() - before)
    };
    let problems: Vec<String> = problems.iter().map(relative).collect();
    assert_eq!(problems, expected, "{text}");
}

const ROUTES: &str = r#"
[route]
receiver = "mails"
group_by = ["alertname"]
group_wait = "0s"
group_interval = "1m"
repeat_interval = "4h"

[[route.routes]]
receiver = "pager"
matchers = ['severity=~"1|2"', 'team!=lab']
mute_time_intervals = ["weekend"]

[[route.routes.routes]]
receiver = "team"
matchers = ["team=db"]
continue = true

[[inhibit]]
source_matchers = ["alertname=ClusterDown"]
target_matchers = ["severity=2"]
equal = ["cluster"]

[[time_interval]]
name = "weekend"
time_intervals = [
  { weekdays = ["saturday", "sunday"], location = "Europe/Berlin" },
  { times = [{ start_time = "22:00", end_time = "24:00" }], days_of_month = ["-1"] },
]

[[rotation]]
name = "on call"
members = ["pager", "mails"]
time_zone = "Europe/Berlin"
start = "2026-01-05T09:00"
shift = "1w"
overrides = [{ member = "mails", from = "2026-12-24T00:00", to = "2026-12-27T00:00" }]

[[escalation]]
name = "team"
steps = [
  { after = "0s", receivers = ["on call"] },
  { after = "5min", receivers = ["mails", "pager"] },
]
"#;

#[test]
fn routes_time_intervals_rotations_and_escalations_are_read() {
    let settings = read(&format!("{CONTACTS}{ROUTES}"), Path::new("/")).unwrap();
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let receivers = |pairs: &[(&str, &str)]| settings.routing.receivers(&labels(pairs));
    assert_eq!(receivers(&[]), ["mails"]);
    assert_eq!(receivers(&[("severity", "1")]), ["pager"]);
    assert_eq!(receivers(&[("severity", "1"), ("team", "lab")]), ["mails"]);
    assert_eq!(receivers(&[("severity", "2"), ("team", "db")]), ["team"]);
    assert_eq!(settings.escalations[0].to_string(), "at once: on call; after 5 min: mails, pager");
    assert_eq!(settings.rotations[0].name, "on call");
}

#[test]
fn each_misspelled_name_has_its_line_and_the_nearest_name() {
    check(
        "[route]\nreciever = 'mails'\n",
        &["2: unknown key \"reciever\"; did you mean \"receiver\"?"],
    );
    check(
        "[route]\nreceiver = 'mail'\nmute_time_intervals = ['x']\n\n\
         [[route.routes]]\nreceiver = 'beat'\n",
        &[
            "2: unknown receiver \"mail\"; did you mean \"mails\"?",
            "3: unknown time interval \"x\"; there is none",
            "6: unknown receiver \"beat\"; known: mails, pager",
        ],
    );
    check(
        "[route]\nreceiver = 'mails'\nmatchers = ['a=b']\n",
        &["3: the root route matches every alert; move this to one of its `routes`"],
    );
    check("[route]\ngroup_wait = '1s'\n", &["1: the root route has no receiver; set `receiver`"]);
    check("", &["-14: contacts receive no alerts without a route; add [route] with `receiver`"]);
}

#[test]
fn values_that_cannot_be_used_have_their_line() {
    let below = |text: &str| format!("[route]\nreceiver = 'mails'\n{text}");
    let first = |text: &str| {
        let problems = read(&format!("{CONTACTS}{}", below(text)), Path::new("/")).unwrap_err();
        let (line, what) = problems[0].split_once(": ").unwrap();
        let line = line.parse::<usize>().unwrap() - CONTACTS.matches('\n').count();
        format!("{line}: {what}")
    };
    let start = |text: &str, expected: &str| {
        let found = first(text);
        assert!(found.starts_with(expected), "{found}");
    };
    start("group_interval = '0s'\n", "3: \"0s\": ");
    start("group_wait = 'soon'\n", "3: \"soon\": ");
    start(
        "[[route.routes]]\nmatchers = ['a=b', 'c']\n",
        "4: cannot read matcher \"c\": no operator",
    );
    let interval = |range: &str| {
        format!("[[time_interval]]\nname = 'n'\ntime_intervals = [\n{{ {range} }},\n]\n")
    };
    start(&interval("weekdays = ['freitag']"), "6: \"freitag\": expected a weekday");
    start(
        &interval("location = 'Mars/Base'"),
        "6: \"Mars/Base\": expected the name of a time zone",
    );
    let times = "times = [{ start_time = '22:00', end_time = '06:00' }]";
    start(&interval(times), "6: start_time is not before end_time; split it at midnight");
    let rotation = "[[rotation]]\nname = 'r'\nstart = '2026-01-05T09:00'\n";
    start(&format!("{rotation}shift = '1w'\nmembers = []\n"), "7: a rotation needs at least one");
    start(&format!("{rotation}shift = '1s'\nmembers = ['mails']\n"), "6: shift must be at least");
    start(
        &format!("{rotation}shift = '1w'\nmembers = ['beat']\n"),
        "7: unknown receiver \"beat\"; known: mails, pager",
    );
    start(
        "[[escalation]]\nname = 'mails'\nsteps = [{ after = '0s', receivers = ['pager'] }]\n",
        "4: the name \"mails\" is used twice",
    );
    let steps = "{ after = '5m', receivers = ['pager'] }, { after = '1m', receivers = ['mails'] }";
    start(
        &format!("[[escalation]]\nname = 'e'\nsteps = [\n{steps} ]\n"),
        "6: a step is before the one above it",
    );
}

/// A directory with Alertmanager's file.
fn dir(name: &str, file: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("topdeck-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("alertmanager.yml"), file).unwrap();
    dir
}

fn import(name: &str, file: &str) -> Result<NotifySettings, Vec<String>> {
    let dir = dir(name, file);
    let text = format!("alertmanager_config = 'alertmanager.yml'\n{CONTACTS}");
    let read = read(&text, &dir);
    std::fs::remove_dir_all(&dir).unwrap();
    let short = |text: String| text.replace(&format!("{}/", dir.display()), "");
    match read {
        Ok(mut settings) => {
            settings.unused = settings.unused.into_iter().map(short).collect();
            Ok(settings)
        }
        Err(problems) => Err(problems.into_iter().map(short).collect()),
    }
}

#[test]
fn a_file_of_alertmanager_routes_as_before_and_what_is_not_used_is_listed() {
    let file = r#"
global:
  smtp_smarthost: 'localhost:25'
templates: ['/etc/alertmanager/template/*.tmpl']
route:
  receiver: mails
  group_by: ['alertname', cluster]
  group_wait: 30s
  routes: &routes
  - matchers:
    - service=~"foo1|foo2"
    - '{severity="critical",team!="lab"}'
    receiver: pager
    continue: true
    mute_time_intervals: [offhours]
  - match: {owner: team-X}
    match_re:
      service: ^(foo|bar)$
    receiver: pager
time_intervals:
- name: offhours
  time_intervals:
  - times:
    - start_time: '17:00'
      end_time: '24:00'
    weekdays: ['monday:friday']
    location: Europe/Berlin
inhibit_rules:
- source_match: {severity: critical}
  target_matchers: [severity = warning]
  equal: [alertname]
receivers:
- name: mails
  email_configs:
  - to: team@example.org
- name: pager
"#;
    let settings = import("am-good", file).unwrap();
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    let receivers = |pairs: &[(&str, &str)]| settings.routing.receivers(&labels(pairs));
    assert_eq!(receivers(&[("service", "foo1")]), ["mails"]);
    assert_eq!(receivers(&[("service", "foo1"), ("severity", "critical")]), ["pager"]);
    assert_eq!(receivers(&[("owner", "team-X"), ("service", "bar")]), ["pager"]);
    assert_eq!(receivers(&[("owner", "team-X"), ("service", "bars")]), ["mails"]);
    assert_eq!(settings.routing.inhibit_rules.len(), 1);
    assert!(settings.routing.root.routes[0].continues);
    let expected = [
        "alertmanager.yml:2:1: global is not used: URLs and secrets are keys of each [[contact]]",
        "alertmanager.yml:4:1: templates is not used: texts have a fixed form",
        "alertmanager.yml:33:3: email_configs of receiver \"mails\" is not used: topdeck has its \
         own \"mails\"",
    ];
    assert_eq!(settings.unused, expected);
}

#[test]
fn mistakes_of_alertmanagers_file_have_line_and_column() {
    let route = "route:\n  receiver: mails\n";
    let check = |name: &str, file: &str, expected: &[&str]| {
        let problems = import(name, file).unwrap_err();
        let problems: Vec<&str> =
            problems.iter().map(|problem| problem.strip_prefix("1: ").unwrap()).collect();
        assert_eq!(problems, expected, "{file}");
    };
    check(
        "am-receiver",
        &format!("{route}receivers:\n- name: team\n  slack_configs: []\n"),
        &["alertmanager.yml:4:3: receiver \"team\" (it has slack_configs) is not configured; \
             add a [[contact]], [[rotation]] or [[escalation]] of this name"],
    );
    check(
        "am-key",
        &format!("{route}  group_wat: 1s\nrecievers: []\n"),
        &[
            "alertmanager.yml:4:1: unknown key \"recievers\"; did you mean \"receivers\"?",
            "alertmanager.yml:3:3: unknown key \"group_wat\"; did you mean \"group_wait\"?",
        ],
    );
    check("am-empty", "# nothing\n", &["alertmanager.yml:1:1: the file is empty"]);
    check(
        "am-matcher",
        &format!("{route}  routes:\n  - matchers: [a]\n"),
        &["alertmanager.yml:4:15: cannot read matcher \"a\": no operator, expected a matcher \
             such as severity=\"page\""],
    );
    check("am-route", "receivers: []\n", &["alertmanager.yml:1:1: `route` is missing"]);
}

#[test]
fn aliases_cannot_fill_the_memory() {
    let mut file = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (below, name) in ["a", "b", "c", "d", "e", "f"].iter().zip(["b", "c", "d", "e", "f", "g"]) {
        let list = vec![format!("*{below}"); 10].join(", ");
        file.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let problems = import("am-aliases", &file).unwrap_err();
    assert!(
        problems[0].ends_with("limit of 131072 nodes exceeded, counting aliases"),
        "{problems:?}"
    );
}

#[test]
fn routes_here_and_in_alertmanagers_file_exclude_each_other() {
    let dir = dir("am-both", "route: {receiver: mails}\n");
    let text = format!(
        "alertmanager_config = 'alertmanager.yml'\n{CONTACTS}[route]\nreceiver = 'mails'\n"
    );
    let problems = read(&text, &dir).unwrap_err();
    std::fs::remove_dir_all(dir).unwrap();
    assert_eq!(problems, ["17: route and alertmanager_config exclude each other; keep one"]);
}
