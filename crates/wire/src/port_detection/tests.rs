//! Detection in a directory that stands for /proc.

use std::os::unix::fs::symlink;

use super::*;

struct ProcDirectory(PathBuf);

impl ProcDirectory {
    fn new(name: &str) -> ProcDirectory {
        let path =
            std::env::temp_dir().join(format!("topdeck-detect-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("net")).unwrap();
        ProcDirectory(path)
    }

    /// Replaces the listening sockets: hexadecimal address, port, inode. A connection follows.
    fn listen(&self, sockets: &[(&str, u16, u64)]) {
        let (mut v4, mut v6) = ("  sl\n".to_owned(), "  sl\n".to_owned());
        for (address, port, inode) in sockets {
            let file = if address.len() == 8 { &mut v4 } else { &mut v6 };
            *file += &format!(" 0: {address}:{port:04X} 0:0 0A 0:0 00:0 0 0 0 {inode} 1\n");
        }
        v4 += " 9: 0100007F:22B8 0100007F:D431 01 0:0 00:0 0 0 0 999 1\n";
        fs::write(self.0.join("net/tcp"), v4).unwrap();
        fs::write(self.0.join("net/tcp6"), v6).unwrap();
    }

    fn add_process(&self, process: u32, comm: &str, command_line: &str, sockets: &[u64]) {
        let directory = self.0.join(process.to_string());
        fs::create_dir_all(directory.join("fd")).unwrap();
        fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(directory.join("cmdline"), command_line.replace(' ', "\0")).unwrap();
        for (at, inode) in sockets.iter().enumerate() {
            let link = directory.join("fd").join(at.to_string());
            symlink(format!("socket:[{inode}]"), link).unwrap();
        }
    }

    fn detector(&self, named: &[&str]) -> PortDetector {
        let named = named.iter().map(|text| ServiceRule::parse(text).unwrap()).collect();
        PortDetector::new(&self.0, named, PROTOCOLS.iter().collect())
    }
}

impl Drop for ProcDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ANY: &str = "00000000";
const ANY_V6: &str = "00000000000000000000000000000000";
/// 127.0.0.1 of a machine of this byte order.
const LOCAL: &str = if cfg!(target_endian = "little") { "0100007F" } else { "7F000001" };

#[test]
fn a_known_program_tells_the_protocol_and_otherwise_the_port_does() {
    let proc = ProcDirectory::new("known");
    proc.listen(&[
        (LOCAL, 5440, 1),
        (ANY, 6380, 2),
        (ANY_V6, 6380, 3),
        (ANY, 22, 4),
        (ANY, 9093, 5),
        (ANY, 7199, 6),
        (ANY, 33060, 7),
        (ANY, 3306, 8),
        (ANY, 8080, 9),
        (ANY, 5432, 10),
    ]);
    // The supervisor has passed the socket on.
    proc.add_process(1, "systemd", "init", &[1]);
    proc.add_process(10, "postgres", "postgres", &[1]);
    proc.add_process(11, "redis-server", "redis-server", &[2, 3]);
    proc.add_process(12, "ss\u{7}hd", "sshd", &[4]);
    proc.add_process(13, "java", "java -Xmx1g kafka.Kafka server.properties", &[5, 6]);
    proc.add_process(14, "mysqld", "mysqld", &[7, 8]);
    proc.add_process(15, "nginx", "nginx", &[10]);
    // Nobody is seen to have socket 9.
    let mut detector = proc.detector(&[]);
    assert!(detector.detect());
    assert_eq!(
        detector.services().decoded,
        [
            "3306/mysql (mysqld)",
            "5432/http (nginx)",
            "6380/redis (redis-server)",
            "8080/http",
            "9093/kafka (java)",
            "127.0.0.1:5440/postgres (postgres)",
        ]
    );
    assert_eq!(detector.services().not_decoded, ["22 (sshd)", "7199 (java)", "33060 (mysqld)"]);
    assert_eq!(
        detector.services().to_string(),
        "detected ports: 3306/mysql (mysqld), 5432/http (nginx), 6380/redis (redis-server), \
         8080/http, 9093/kafka (java), 127.0.0.1:5440/postgres (postgres); not decoded: 22 (sshd), \
         7199 (java), 33060 (mysqld)"
    );
    let rule = |port: u16| detector.rules().iter().find(|rule| rule.port == port).unwrap();
    assert_eq!(rule(5440).address, Some([127, 0, 0, 1].into()));
    // Before the default port.
    assert_eq!(rule(5432).protocol.name, "http");
    assert_eq!(rule(9042).protocol.name, "cassandra");
}

#[test]
fn rules_of_the_user_and_protocols_that_are_left_out_come_first() {
    let proc = ProcDirectory::new("named");
    proc.listen(&[(ANY, 5440, 1), (ANY, 6380, 2)]);
    proc.add_process(10, "postgres", "postgres", &[1]);
    let mut detector = proc.detector(&["shop=5440/http"]);
    assert!(detector.detect());
    assert_eq!(detector.services().decoded, ["6380/redis"]);
    let named: Vec<_> = detector.rules().iter().filter(|rule| rule.port == 5440).collect();
    assert_eq!((named.len(), named[0].protocol.name), (1, "http"));
    let protocols = vec![find_protocol("postgres").unwrap()];
    let mut detector = PortDetector::new(&proc.0, Vec::new(), protocols);
    assert!(detector.detect());
    assert_eq!(detector.services().decoded, ["5440/postgres (postgres)"]);
    assert_eq!(detector.services().not_decoded, ["6380"]);
}

#[test]
fn what_listens_later_is_detected_and_what_has_ended_stays() {
    let proc = ProcDirectory::new("later");
    proc.listen(&[(ANY, 5440, 1)]);
    proc.add_process(10, "postgres", "postgres", &[1]);
    let mut detector = proc.detector(&[]);
    assert!(detector.detect());
    assert!(!detector.detect(), "nothing has changed");
    proc.listen(&[(ANY, 6390, 2)]);
    proc.add_process(11, "redis-server", "redis-server", &[2]);
    assert!(detector.detect());
    let both = ["6390/redis (redis-server)", "5440/postgres (postgres)"];
    assert_eq!(detector.services().decoded, both);
    // Another program has the port of the first one.
    proc.listen(&[(ANY, 6390, 2), (ANY, 5440, 3)]);
    proc.add_process(12, "nginx", "nginx", &[3]);
    assert!(detector.detect());
    let others = ["5440/http (nginx)", "6390/redis (redis-server)"];
    assert_eq!(detector.services().decoded, others);
    proc.listen(&[(ANY, 6390, 2), (ANY, 5440, 3), (ANY, 22, 4)]);
    assert!(!detector.detect(), "the rules are the same");
    assert_eq!(detector.services().not_decoded, ["22"]);
}

#[test]
fn ports_beyond_the_limit_are_not_decoded() {
    let proc = ProcDirectory::new("limit");
    let sockets: Vec<_> = (0..120).map(|n| (ANY, 20_000 + n as u16, n)).collect();
    proc.listen(&sockets);
    let inodes: Vec<u64> = (0..120).collect();
    proc.add_process(10, "nginx", "nginx", &inodes);
    let mut detector = proc.detector(&[]);
    assert!(detector.detect());
    assert_eq!(ServiceRule::ports(detector.rules()).len(), PORTS_MAX);
    let services = detector.services();
    assert_eq!(services.decoded.len() + services.not_decoded_count, 120);
    assert_eq!(services.not_decoded.len(), NOT_DECODED_MAX.min(services.not_decoded_count));
    assert!(services.not_decoded[0].ends_with("/http (nginx)"), "{services}");
}

#[test]
fn an_unreadable_proc_has_nothing() {
    let mut detector = PortDetector::new(Path::new("/nonexistent"), Vec::new(), Vec::new());
    assert!(!detector.detect());
    assert_eq!(detector.services().to_string(), "detected ports: none; not decoded: none");
}
