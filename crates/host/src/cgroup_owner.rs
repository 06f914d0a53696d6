//! Owner of a cgroup: the systemd unit or the container that it belongs to.
//!
//! The path of a cgroup has the name of the unit, or the 64 hexadecimal digits of the container's
//! id. Names of containers are in files: of the kubelet, of Docker, of containerd, and of Podman
//! and CRI-O. No daemon is asked, and nothing is written.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Length of a container's id.
const ID_DIGITS: usize = 64;
/// Digits of an id that stand for a container without a name.
const SHORT_DIGITS: usize = 12;
/// Longest label value; the longest name of a unit.
const NAME_BYTES_MAX: usize = 255;
/// Size limit of a file with names.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Limit of entries that are read of a directory.
const ENTRIES_MAX: usize = 10_000;
/// Containers whose names are kept: all of a walk.
pub(crate) const NAMES_MAX: usize = 4_096;
/// Look-ups of a name that is not found: it may be written after the cgroup was made.
const ATTEMPTS_MAX: u8 = 3;

/// Files with names of containers, below a root.
const KUBELET_LOGS: &str = "var/log/containers";
const DOCKER: &str = "var/lib/docker/containers";
const CONTAINERD: &str = "run/containerd/io.containerd.runtime.v2.task";
const CONTAINERD_NAMESPACES: [&str; 3] = ["k8s.io", "default", "moby"];
const PODMAN: &str = "var/lib/containers/storage/overlay-containers/containers.json";

/// Name of a pod's sandbox.
const SANDBOX: &str = "POD";

/// Labels of an owner, in their order: `unit`, or `container` and, of Kubernetes, `namespace` and
/// `pod`.
pub(crate) type OwnerLabels = Vec<(String, String)>;

/// Owner in the path of a cgroup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CgroupOwner<'a> {
    /// Name of the unit.
    Unit(&'a str),
    /// Id of the container.
    Container(&'a str),
    /// Id of a container of a user or a guest. Names in the files of root are those of others,
    /// whatever id the user chooses.
    UserContainer(&'a str),
}

impl<'a> CgroupOwner<'a> {
    /// The owner in a path as in `/proc/PID/cgroup`.
    pub(crate) fn of_path(path: &'a str) -> Option<CgroupOwner<'a>> {
        // `..` is at the start of a path that is outside the reader's cgroup namespace.
        let parts = || path.split('/').filter(|part| !part.is_empty() && *part != "..");
        if let Some(id) = parts().filter_map(container_id).next_back() {
            let is_of_user = parts().any(is_delegated);
            let owner =
                if is_of_user { CgroupOwner::UserContainer } else { CgroupOwner::Container };
            return Some(owner(id));
        }
        // Units below anything else are those of a guest, or of a user.
        let mut reached = parts().skip_while(|part| unit_name(part).is_none() && is_parent(part));
        reached.next().and_then(unit_name).map(CgroupOwner::Unit)
    }
}

/// Whether a cgroup that is no owner has those of units and containers of this host below it. All
/// others may be delegated to a guest or a user, who makes any names below them.
pub(crate) fn is_parent(part: &str) -> bool {
    const NAMES: [&str; 6] = ["docker", "k8s.io", "default", "moby", "burstable", "besteffort"];
    const PREFIXES: [&str; 4] = ["kubepods", "pod", "machine", "libpod"];
    let is_unit = part.ends_with(".service") || part.ends_with(".scope");
    let is_known = || PREFIXES.iter().any(|prefix| part.starts_with(prefix));
    let is_runtime = NAMES.contains(&part) || is_known();
    part.ends_with(".slice") || is_runtime && !is_unit && !is_monitor(part)
}

/// Whether a part of a path is the tree of a user, or of LXC.
fn is_delegated(part: &str) -> bool {
    let is_user = part.starts_with("user-") && part.ends_with(".slice")
        || part.starts_with("user@") && part.ends_with(".service");
    is_user || part == "lxc" || part.starts_with("lxc.")
}

/// Id of a container in a part of a path: `docker-ID.scope`, `cri-containerd-ID.scope`, `ID`.
fn container_id(part: &str) -> Option<&str> {
    if is_monitor(part) {
        return None;
    }
    let stem = part.strip_suffix(".scope").unwrap_or(part);
    let id = stem.rsplit('-').next()?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (id.len() == ID_DIGITS && id.bytes().all(is_digit)).then_some(id)
}

/// Whether it is the monitor of a container of Podman or CRI-O, which is no part of it.
fn is_monitor(part: &str) -> bool {
    part.contains("-conmon-")
}

/// Name of a unit, if a part of a path is one. Units whose names are made anew at each start
/// (sessions, `systemd-run`) belong to their user, or to none: they would be new series each time.
fn unit_name(part: &str) -> Option<&str> {
    let is_user = part.starts_with("user-") && part.ends_with(".slice");
    let is_unit = part.ends_with(".service") || part.ends_with(".scope");
    let is_transient = part.starts_with("run-") || part.starts_with("session-") || is_monitor(part);
    (is_user || is_unit && !is_transient).then_some(part).filter(|name| is_name(name))
}

/// Whether a text is fit for a label.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Owners of cgroups with the names of containers, which are kept.
#[derive(Debug)]
pub(crate) struct CgroupOwners {
    root: PathBuf,
    /// By id: the labels, or the number of look-ups that found none.
    names: HashMap<String, Result<OwnerLabels, u8>>,
    files: NameFiles,
}

/// Names in files that are about all containers, read at the first look-up.
#[derive(Debug, Default)]
struct NameFiles {
    kubelet: Option<HashMap<String, OwnerLabels>>,
    podman: Option<HashMap<String, OwnerLabels>>,
}

impl Default for CgroupOwners {
    fn default() -> CgroupOwners {
        CgroupOwners::below(Path::new("/"))
    }
}

impl CgroupOwners {
    /// With the files below a root.
    pub(crate) fn below(root: &Path) -> CgroupOwners {
        let (names, files) = (HashMap::new(), NameFiles::default());
        CgroupOwners { root: root.to_owned(), names, files }
    }

    /// Labels of the owner of a process; empty if it has none.
    pub(crate) fn of_process(&mut self, pid: u32) -> OwnerLabels {
        self.files = NameFiles::default();
        let path = self.root.join(format!("proc/{pid}/cgroup"));
        let text = read_file(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // Version 2 has the line `0::PATH`. With version 1, other hierarchies may have the owner.
        let owned = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let owner = owned.filter_map(CgroupOwner::of_path).max_by_key(|owner| match owner {
            CgroupOwner::Container(_) | CgroupOwner::UserContainer(_) => 1,
            CgroupOwner::Unit(_) => 0,
        });
        owner.map(|owner| self.labels(&owner)).unwrap_or_default()
    }

    /// Labels of an owner.
    fn labels(&mut self, owner: &CgroupOwner<'_>) -> OwnerLabels {
        match owner {
            CgroupOwner::Unit(name) => unit_labels(name),
            CgroupOwner::Container(id) => {
                self.look_up(id).clone().unwrap_or_else(|_| short_labels(id))
            }
            CgroupOwner::UserContainer(id) => short_labels(id),
        }
    }

    /// Labels of a container whose name was found or will not be found: a series with its id would
    /// end when the name is found.
    pub(crate) fn settled(&mut self, id: &str) -> Option<OwnerLabels> {
        match self.look_up(id) {
            Ok(labels) => Some(labels.clone()),
            Err(ATTEMPTS_MAX..) => Some(short_labels(id)),
            Err(_) => None,
        }
    }

    /// Ends a walk that found these containers: others are gone.
    pub(crate) fn end_walk(&mut self, ids: &HashSet<&str>) {
        self.names.retain(|id, _| ids.contains(&**id));
        self.files = NameFiles::default();
    }

    /// Number of containers whose names are kept.
    #[cfg(test)]
    pub(crate) fn names_len(&self) -> usize {
        self.names.len()
    }

    fn look_up(&mut self, id: &str) -> &Result<OwnerLabels, u8> {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(id) {
            self.names.clear();
        }
        let known = self.names.entry(id.to_owned()).or_insert(Err(0));
        if let Err(attempts @ 0..ATTEMPTS_MAX) = known {
            *known = find_name(&self.root, &mut self.files, id).ok_or(*attempts + 1);
        }
        known
    }
}

/// Labels of a unit.
pub(crate) fn unit_labels(name: &str) -> OwnerLabels {
    vec![label("unit", name)]
}

/// Labels of a container without a name.
fn short_labels(id: &str) -> OwnerLabels {
    vec![label("container", &id[..SHORT_DIGITS])]
}

/// Whether it is the sandbox of a pod, which only holds the namespaces.
pub(crate) fn is_sandbox(labels: &OwnerLabels) -> bool {
    labels.len() > 1 && labels[0].1 == SANDBOX
}

fn label(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Reads a regular file up to the size limit.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if fs::metadata(path).ok()?.is_file() {
        File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&read_file(path)?).ok()
}

/// Labels of a container from the first file that has its name.
fn find_name(root: &Path, files: &mut NameFiles, id: &str) -> Option<OwnerLabels> {
    let kubelet = files.kubelet.get_or_insert_with(|| kubelet_names(root));
    kubelet
        .get(id)
        .cloned()
        .or_else(|| {
            let file = read_json(&root.join(DOCKER).join(id).join("config.v2.json"))?;
            plain_name(file.get("Name")?.as_str()?.trim_start_matches('/'))
        })
        .or_else(|| {
            let dir = root.join(CONTAINERD);
            CONTAINERD_NAMESPACES.iter().find_map(|namespace| {
                let file = read_json(&dir.join(namespace).join(id).join("config.json"))?;
                annotated_name(file.get("annotations")?)
            })
        })
        .or_else(|| files.podman.get_or_insert_with(|| podman_names(root)).get(id).cloned())
}

/// Names of containers of Kubernetes, from the names of their logs: `POD_NAMESPACE_NAME-ID.log`.
fn kubelet_names(root: &Path) -> HashMap<String, OwnerLabels> {
    let files = fs::read_dir(root.join(KUBELET_LOGS)).into_iter().flatten();
    let files = files.take(ENTRIES_MAX).flatten();
    let names = files.filter_map(|file| {
        let file = file.file_name().into_string().ok()?;
        let (name, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = name.splitn(3, '_');
        let (pod, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some((id.to_owned(), pod_labels(name, namespace, pod)?))
    });
    names.collect()
}

/// Names of containers of Podman and CRI-O.
fn podman_names(root: &Path) -> HashMap<String, OwnerLabels> {
    let file = read_json(&root.join(PODMAN)).unwrap_or_default();
    let names = file.as_array().into_iter().flatten().filter_map(|one| {
        let name = one.get("names")?.get(0)?.as_str()?;
        Some((one.get("id")?.as_str()?.to_owned(), plain_name(name)?))
    });
    names.collect()
}

/// `k8s_NAME_POD_NAMESPACE_UID_ATTEMPT` of Docker and CRI-O, or the name itself.
fn plain_name(name: &str) -> Option<OwnerLabels> {
    let Some(parts) = name.strip_prefix("k8s_") else {
        return is_name(name).then(|| vec![label("container", name)]);
    };
    let mut parts = parts.split('_');
    let (name, pod, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    pod_labels(name, namespace, pod)
}

/// Annotations of containerd's CRI plugin, or else of nerdctl: a pod may have any others.
fn annotated_name(annotations: &Value) -> Option<OwnerLabels> {
    let text = |name: &str| annotations.get(name).and_then(Value::as_str);
    let Some(pod) = text("io.kubernetes.cri.sandbox-name") else {
        return plain_name(text("nerdctl/name")?);
    };
    let namespace = text("io.kubernetes.cri.sandbox-namespace")?;
    // As in Docker, the sandbox has the name POD.
    pod_labels(text("io.kubernetes.cri.container-name").unwrap_or(SANDBOX), namespace, pod)
}

fn pod_labels(name: &str, namespace: &str, pod: &str) -> Option<OwnerLabels> {
    [name, namespace, pod]
        .iter()
        .all(|text| is_name(text))
        .then(|| vec![label("container", name), label("namespace", namespace), label("pod", pod)])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory as the root of a host, removed when dropped.
    pub(crate) struct CgroupFiles(pub(crate) PathBuf);

    impl CgroupFiles {
        pub(crate) fn new() -> CgroupFiles {
            let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            let root = std::env::temp_dir().join(format!("topdeck-cgroups-{number:x}"));
            fs::create_dir_all(&root).unwrap();
            CgroupFiles(root)
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for CgroupFiles {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    pub(crate) fn id(digits: &str) -> String {
        digits.repeat(ID_DIGITS / digits.len())
    }

    fn show(labels: OwnerLabels) -> String {
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        labels.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn paths_have_units_and_containers() {
        #[track_caller]
        fn check(path: &str, expected: Option<CgroupOwner<'_>>) {
            assert_eq!(CgroupOwner::of_path(path), expected, "{path}");
        }
        use CgroupOwner::{Container, Unit, UserContainer};
        let id = id("0f");
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/docker/{id}/system.slice/nginx.service"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/kubepods/burstable/pod7/{id}"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/libpod_parent/{}/libpod-{id}", self::id("3c")),
            format!("/other/{id}"),
        ] {
            check(&path, Some(Container(&id)));
        }
        for path in [
            format!("/user.slice/user-1.slice/user@1.service/user.slice/libpod-{id}.scope"),
            format!("/user.slice/user-1.slice/session-3.scope/docker-{id}.scope"),
            format!("/lxc.payload.guest/docker/{id}"),
            format!("/lxc/guest/system.slice/docker-{id}.scope"),
        ] {
            check(&path, Some(UserContainer(&id)));
        }
        // Units of guests have the names of units of the host.
        check("/lxc.payload.guest/system.slice/nginx.service", None);
        check("/lxc/guest/system.slice/nginx.service", None);
        check("/system.slice/run-u7.service/nginx.service", None);
        check("/../../system.slice/nginx.service", Some(Unit("nginx.service")));
        check(&format!("/machine.slice/libpod-conmon-{id}.scope"), None);
        check("/system.slice/nginx.service", Some(Unit("nginx.service")));
        check("/system.slice/a.service/worker", Some(Unit("a.service")));
        check("/system.slice/system-getty.slice/getty@1.service", Some(Unit("getty@1.service")));
        check("/user.slice/user-1000.slice/session-3.scope", Some(Unit("user-1000.slice")));
        check("/init.scope", Some(Unit("init.scope")));
        check("/system.slice/run-u7.service", None);
        check("/", None);
        check("", None);
        check(&format!("/system.slice/{}.service", "x".repeat(300)), None);
        check(&format!("/docker/{}", id.to_uppercase()), None);
    }

    #[test]
    fn names_of_containers_are_in_files() {
        let root = CgroupFiles::new();
        let [docker, containerd, sandbox, nerdctl, podman, kubelet, crio, none] =
            ["a1", "b2", "c3", "d4", "e5", "f6", "07", "18"].map(id);
        root.write(
            &format!("{DOCKER}/{docker}/config.v2.json"),
            &format!("{{\"ID\":\"{docker}\",\"Name\":\"/shop-web-1\",\"State\":{{\"Pid\":1}}}}"),
        );
        let annotations = |name: &str| {
            format!(
                "{{\"annotations\":{{{name}\"io.kubernetes.cri.sandbox-name\":\"web-7d\",\
                 \"io.kubernetes.cri.sandbox-namespace\":\"shop\"}}}}"
            )
        };
        root.write(
            &format!("{CONTAINERD}/k8s.io/{containerd}/config.json"),
            &annotations("\"io.kubernetes.cri.container-name\":\"nginx\","),
        );
        root.write(&format!("{CONTAINERD}/k8s.io/{sandbox}/config.json"), &annotations(""));
        root.write(
            &format!("{CONTAINERD}/default/{nerdctl}/config.json"),
            "{\"annotations\":{\"nerdctl/name\":\"cache\"}}",
        );
        let crio_name = "k8s_api_api-0_shop_1f_2";
        root.write(
            PODMAN,
            &format!(
                "[{{\"id\":\"{podman}\",\"names\":[\"db\"]}},\
                 {{\"id\":\"{crio}\",\"names\":[\"{crio_name}\"]}}]"
            ),
        );
        root.write(&format!("{KUBELET_LOGS}/web-1_shop_side-car-{kubelet}.log"), "");
        let mut owners = CgroupOwners::below(&root.0);
        for (id, expected) in [
            (&docker, "container=shop-web-1"),
            (&containerd, "container=nginx,namespace=shop,pod=web-7d"),
            (&sandbox, "container=POD,namespace=shop,pod=web-7d"),
            (&nerdctl, "container=cache"),
            (&podman, "container=db"),
            (&crio, "container=api,namespace=shop,pod=api-0"),
            (&kubelet, "container=side-car,namespace=shop,pod=web-1"),
            (&none, "container=181818181818"),
        ] {
            assert_eq!(show(owners.labels(&CgroupOwner::Container(id))), expected);
        }
        // Found late, but not too late.
        root.write(&format!("{DOCKER}/{none}/config.v2.json"), "{\"Name\":\"/late\"}");
        assert_eq!(show(owners.labels(&CgroupOwner::Container(&none))), "container=late");
        // A process.
        root.write(
            "proc/7/cgroup",
            &format!("9:name=systemd:/init.scope\n4:memory:/docker/{docker}\n0::/\n"),
        );
        assert_eq!(show(owners.of_process(7)), "container=shop-web-1");
        root.write("proc/8/cgroup", "0::/system.slice/cron.service\n");
        assert_eq!(show(owners.of_process(8)), "unit=cron.service");
        assert_eq!(show(owners.of_process(9)), "");
    }

    #[test]
    fn a_user_who_names_a_cgroup_like_a_container_of_root_does_not_get_its_name() {
        let root = CgroupFiles::new();
        let id = id("a1");
        root.write(&format!("{DOCKER}/{id}/config.v2.json"), "{\"Name\":\"/bank\"}");
        let of_user = "0::/user.slice/user-7.slice/user@7.service/app.slice/docker-";
        root.write("proc/7/cgroup", &format!("{of_user}{id}.scope\n"));
        let mut owners = CgroupOwners::below(&root.0);
        assert_eq!(show(owners.of_process(7)), "container=a1a1a1a1a1a1");
        assert_eq!(show(owners.labels(&CgroupOwner::Container(&id))), "container=bank");
    }

    #[test]
    fn a_pod_with_an_annotation_of_nerdctl_keeps_its_name() {
        let root = CgroupFiles::new();
        let id = id("b2");
        root.write(
            &format!("{CONTAINERD}/k8s.io/{id}/config.json"),
            "{\"annotations\":{\"nerdctl/name\":\"bank\",\
             \"io.kubernetes.cri.container-name\":\"nginx\",\
             \"io.kubernetes.cri.sandbox-name\":\"web-7d\",\
             \"io.kubernetes.cri.sandbox-namespace\":\"shop\"}}",
        );
        let mut owners = CgroupOwners::below(&root.0);
        let labels = owners.labels(&CgroupOwner::Container(&id));
        assert_eq!(show(labels), "container=nginx,namespace=shop,pod=web-7d");
    }

    #[test]
    fn files_about_all_containers_are_read_once_per_walk() {
        let root = CgroupFiles::new();
        let [kubelet, podman, gone] = ["c3", "d4", "e5"].map(id);
        let mut owners = CgroupOwners::below(&root.0);
        assert_eq!(owners.settled(&gone), None);
        root.write(&format!("{KUBELET_LOGS}/web-1_shop_app-{kubelet}.log"), "");
        root.write(PODMAN, &format!("[7,{{\"id\":\"{podman}\",\"names\":[\"db\"]}}]"));
        assert_eq!([&kubelet, &podman].map(|id| owners.settled(id)), [None, None]);
        owners.end_walk(&HashSet::from([&*kubelet, &*podman]));
        // The names that are kept are those of containers that exist.
        assert_eq!(owners.names.len(), 2);
        let labels = [&kubelet, &podman].map(|id| show(owners.settled(id).unwrap()));
        assert_eq!(labels, ["container=app,namespace=shop,pod=web-1", "container=db"]);
    }

    #[test]
    fn damaged_files_give_the_id_and_names_are_bounded() {
        let root = CgroupFiles::new();
        let file = |id: &str, text: &str| {
            root.write(&format!("{DOCKER}/{id}/config.v2.json"), text);
        };
        let mut owners = CgroupOwners::below(&root.0);
        for (digits, text) in [
            ("10", ""),
            ("11", "{\"Name\":"),
            ("12", "{\"Name\":7}"),
            ("13", "{\"Name\":\"/\"}"),
            ("14", "{\"Name\":\"a\\nb\"}"),
            ("15", "{\"Name\":\"k8s_a_b\"}"),
            ("16", "[1"),
            ("17", "\u{fffd}"),
        ] {
            let id = id(digits);
            file(&id, text);
            let expected = format!("container={}", &id[..SHORT_DIGITS]);
            // Also after more look-ups than there are.
            for _ in 0..5 {
                assert_eq!(show(owners.labels(&CgroupOwner::Container(&id))), expected, "{text}");
            }
            assert_eq!(owners.names[&id], Err(ATTEMPTS_MAX));
        }
        for number in 0..NAMES_MAX + 10 {
            owners.labels(&CgroupOwner::Container(&format!("{number:064x}")));
        }
        assert!(owners.names.len() <= NAMES_MAX);
    }
}
