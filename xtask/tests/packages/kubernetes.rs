//! Manifests of Kubernetes: fields and types, references between objects, rights.
//!
//! `testdata/kubernetes/fields.txt` has the fields that the manifests use, with their types, as
//! found in the Go types of Kubernetes: `make system PART=packages` writes it anew and compares.
//! The chart is rendered there, by Helm; here its values are compared with its templates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::yaml;

const RIGHTS_OF_SOURCES: [(&str, &[&str]); 3] = [
    ("wire", &["NET_RAW"]),
    ("wire-tls", &["CHECKPOINT_RESTORE", "SYS_PTRACE"]),
    ("programs", &["DAC_READ_SEARCH", "SYS_PTRACE"]),
];

fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    let path = repo(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifests() -> Vec<Value> {
    let files =
        ["server", "agent"].map(|name| read(&format!("packaging/kubernetes/base/{name}.yaml")));
    files.iter().flat_map(|text| yaml::parse(text)).collect()
}

/// The file of settings from which the base generates a ConfigMap, whose name changes with it.
fn settings_file(map: &Value) -> String {
    let base = &yaml::parse(&read("packaging/kubernetes/base/kustomization.yaml"))[0];
    let generators = base["configMapGenerator"].as_array().unwrap();
    let generator = generators.iter().find(|it| it["name"] == *map).expect("a generator");
    assert!(generator["options"]["disableNameSuffixHash"].is_null());
    let [file] = &generator["files"].as_array().unwrap()[..] else { panic!("{generator}") };
    file.as_str().unwrap().to_owned()
}

fn find<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests.iter().find(|object| object["kind"] == kind).expect(kind)
}

/// Paths of all fields below `value`, with the kinds of their values. Items of a list have the path
/// of the list and `[]`; keys that users choose (labels, data) are left out.
fn fields(path: &str, value: &Value, found: &mut BTreeSet<(String, &'static str)>) {
    const FREE_KEYS: [&str; 6] =
        ["labels", "matchLabels", "selector", "data", "requests", "limits"];
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    found.insert((path.to_owned(), kind));
    match value {
        Value::Array(items) => items.iter().for_each(|it| fields(&format!("{path}[]"), it, found)),
        Value::Object(map) => {
            let name = path.rsplit('.').next().unwrap();
            let is_free = FREE_KEYS.contains(&name) && !map.contains_key("matchLabels");
            for (key, value) in map.iter().filter(|_| !is_free) {
                fields(&format!("{path}.{key}"), value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn manifests_use_fields_of_kubernetes() {
    let recorded = read("testdata/kubernetes/fields.txt");
    let known: BTreeMap<&str, &str> = recorded
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let mut found = BTreeSet::new();
    for object in manifests() {
        fields(object["kind"].as_str().unwrap(), &object, &mut found);
    }
    assert!(found.len() > 100, "{}", found.len());
    for (path, kind) in &found {
        let expected = known.get(path.as_str());
        let expected = expected.unwrap_or_else(|| panic!("{path} is not in fields.txt"));
        // Kubernetes reads some numbers as texts too: ports and quantities.
        let is_right = expected.split('|').any(|it| it == *kind);
        assert!(is_right, "{path}: found {kind}, expected {expected}");
    }
}

#[test]
fn selectors_find_their_pods() {
    let manifests = manifests();
    for kind in ["StatefulSet", "DaemonSet"] {
        let object = find(&manifests, kind);
        let labels = &object["spec"]["template"]["metadata"]["labels"];
        assert_eq!(object["spec"]["selector"]["matchLabels"], *labels, "{kind}");
    }
    let pods = &find(&manifests, "StatefulSet")["spec"];
    let service = find(&manifests, "Service");
    assert_eq!(service["spec"]["selector"], pods["template"]["metadata"]["labels"]);
    assert_eq!(pods["serviceName"], service["metadata"]["name"]);
    let ports = |list: &Value, key: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|port| port[key].to_string()).collect()
    };
    let of_pod = &pods["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(ports(&service["spec"]["ports"], "targetPort"), ports(of_pod, "name"));
    assert_eq!(ports(&service["spec"]["ports"], "port"), ports(of_pod, "containerPort"));
}

#[test]
fn mounts_have_volumes_and_settings_name_them() {
    let manifests = manifests();
    for (kind, file) in [("StatefulSet", "topdeck.toml"), ("DaemonSet", "agent.toml")] {
        let spec = &find(&manifests, kind)["spec"];
        let pod = &spec["template"]["spec"];
        let names = |list: &Value, pointer: &str| -> BTreeSet<String> {
            let name = |it: &Value| it.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            list.as_array().into_iter().flatten().map(name).collect()
        };
        let mut volumes = names(&pod["volumes"], "/name");
        volumes.extend(names(&spec["volumeClaimTemplates"], "/metadata/name"));
        let mounts = &pod["containers"][0]["volumeMounts"];
        assert_eq!(names(mounts, "/name"), volumes, "{kind}");
        let map = pod["volumes"].as_array().unwrap().iter().find(|it| it["name"] == "settings");
        let map = &map.unwrap()["configMap"]["name"];
        assert_eq!(settings_file(map), file);
        let settings = read(&format!("packaging/kubernetes/base/{file}"));
        let settings: toml::Table = settings.parse().unwrap();
        let data_dir = settings["data_dir"].as_str().unwrap();
        assert!(names(mounts, "/mountPath").contains(data_dir), "{kind}: {data_dir}");
        let args = pod["containers"][0]["args"].to_string();
        assert!(args.contains(&format!("/etc/topdeck/{file}")), "{args}");
        let image = format!("topdeck:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(pod["containers"][0]["image"], image.as_str());
    }
}

#[test]
fn pods_have_no_more_rights_than_they_need() {
    let manifests = manifests();
    let pod = |kind| &find(&manifests, kind)["spec"]["template"]["spec"];
    let server = pod("StatefulSet");
    assert_eq!(server["securityContext"]["runAsNonRoot"], true);
    assert_eq!(server["securityContext"]["runAsUser"], 65_532);
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(server[key].is_null(), "{key}");
    }
    let agent = pod("DaemonSet");
    assert!(agent["hostIPC"].is_null());
    for pod in [server, agent] {
        let rights = &pod["containers"][0]["securityContext"];
        assert_eq!(rights["allowPrivilegeEscalation"], false);
        assert_eq!(rights["readOnlyRootFilesystem"], true);
        assert_eq!(rights["capabilities"]["drop"], serde_json::json!(["ALL"]));
        assert!(rights["privileged"].is_null());
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["automountServiceAccountToken"], false);
    }
    assert!(server["containers"][0]["securityContext"]["capabilities"]["add"].is_null());
    let added = &agent["containers"][0]["securityContext"]["capabilities"]["add"];
    assert_eq!(*added, serde_json::json!(["BPF", "PERFMON"]));
}

/// The components add the same capabilities as the drop-ins of the unit.
#[test]
fn components_add_the_rights_of_the_drop_ins() {
    for (name, expected) in RIGHTS_OF_SOURCES {
        let text = read(&format!("packaging/kubernetes/components/{name}/kustomization.yaml"));
        let component = &yaml::parse(&text)[0];
        let patch = component["patches"][0]["patch"].as_str().unwrap();
        let operations = yaml::parse(patch);
        let added: Vec<&str> = operations[0]
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| {
                let path = "/spec/template/spec/containers/0/securityContext/capabilities/add/-";
                assert_eq!((&operation["op"], &operation["path"]), (&"add".into(), &path.into()));
                operation["value"].as_str().unwrap()
            })
            .collect();
        assert_eq!(added, expected, "{name}");
        let drop_in = read(&format!("packaging/systemd/drop-ins/{name}.conf"));
        let line = drop_in.lines().find(|line| line.starts_with("AmbientCapabilities=")).unwrap();
        for right in added {
            assert!(line.contains(&format!("CAP_{right}")), "{name}: {line}");
        }
    }
}

/// A pod reads its settings when it starts.
#[test]
fn pods_of_the_chart_start_again_when_their_settings_change() {
    for (name, file) in [("server", "topdeck.toml"), ("agent", "agent.toml")] {
        let text = read(&format!("packaging/kubernetes/chart/templates/{name}.yaml"));
        let settings = text.split(&format!("  {file}: |\n    {{{{- ")).nth(1).expect(file);
        let settings = settings.split(" | nindent").next().unwrap();
        let annotation = format!(
            "      annotations: {{ checksum/config: {{{{ {settings} | sha256sum | quote }}}} }}\n"
        );
        assert!(text.contains(&annotation), "{name}: {annotation}");
    }
}

/// Paths of `.Values` in the templates are those of values.yaml.
#[test]
fn templates_use_values_that_exist() {
    let dir = repo("packaging/kubernetes/chart");
    let values = yaml::parse(&fs::read_to_string(dir.join("values.yaml")).unwrap());
    let mut used = BTreeSet::new();
    for entry in fs::read_dir(dir.join("templates")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(text.matches("{{").count(), text.matches("}}").count());
        for (at, _) in text.match_indices(".Values.") {
            let rest = &text[at + ".Values.".len()..];
            let is_path = |c: char| c.is_ascii_alphanumeric() || c == '.';
            used.insert(rest[..rest.find(|c| !is_path(c)).unwrap()].replace('.', "/"));
        }
    }
    assert!(used.len() > 10, "{used:?}");
    for path in &used {
        assert!(values[0].pointer(&format!("/{path}")).is_some(), "values.yaml has no {path}");
    }
    let is_used = |path: &str| used.iter().any(|it| it == path);
    for (table, map) in values[0].as_object().unwrap() {
        for key in map.as_object().unwrap().keys() {
            let path = format!("{table}/{key}");
            let is_part = used.iter().any(|it| it.starts_with(&format!("{path}/")));
            assert!(is_used(&path) || is_part, "no template uses {path}");
        }
    }
    let chart = &yaml::parse(&fs::read_to_string(dir.join("Chart.yaml")).unwrap())[0];
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
