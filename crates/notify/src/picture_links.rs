//! Links to pictures, for receivers that fetch them: signed, for one picture, with an expiry.
//!
//! A picture is a file `ID.png` of the directory `pictures`, its link is
//! `BASE/v1/alert-pictures/ID?expires=SECONDS&signature=HEX`. The signature is the HMAC-SHA256 (RFC
//! 2104) of a context, the path and the expiry. Its key is 32 random bytes in the file `key` of the
//! directory, which is made with the first link and which no other user can read. The id is an
//! HMAC, too, so that it says nothing about the alert.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use net::signature::to_hex;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::notification::{NotificationKey, Picture};

/// Path of pictures; the id follows.
const PATH: &str = "/v1/alert-pictures/";
/// Prefix of what is signed: a signature is valid for nothing else.
const SIGNATURE_CONTEXT: &str = "topdeck picture 1\n";
/// The same of ids.
const ID_CONTEXT: &str = "topdeck picture id 1\n";
/// For how long a link is valid: incidents are looked at later, too.
const VALIDITY_S: i64 = 7 * 86_400;
/// Maximum number of pictures; the oldest are removed.
const PICTURES_MAX: usize = 1_000;
/// Largest file that is read; pictures above 64 KiB are not sent.
const PICTURE_BYTES_MAX: u64 = 1 << 20;
const KEY_BYTES: usize = 32;
/// Bytes of an id.
const ID_BYTES: usize = 16;
const KEY_NAME: &str = "key";
/// Extension of a file that is being written.
const NEW_EXTENSION: &str = "new";
/// Least distance of the times of two pictures, if the clock was set back.
const PUBLISHED_APART: Duration = Duration::from_millis(1);
const SECOND_NS: i64 = 1_000_000_000;

/// Held while a picture is written: contacts have a thread each, and one notification may go to
/// several of them.
static PUBLISHING: Mutex<()> = Mutex::new(());

/// Pictures of a node that receivers can fetch.
#[derive(Clone, Debug)]
pub struct PictureLinks {
    dir: PathBuf,
    /// URL under which people reach the node; may be empty.
    external_url: String,
}

impl PictureLinks {
    /// Pictures in a directory, whose parent exists. It is created with the first link.
    pub fn new(dir: PathBuf, external_url: &str) -> PictureLinks {
        PictureLinks { dir, external_url: external_url.to_owned() }
    }

    /// URL under which the node is reached over HTTPS, if it is known.
    pub(crate) fn https_url(&self) -> Option<&str> {
        Some(self.external_url.as_str()).filter(|url| url.starts_with("https://"))
    }

    /// Stores the picture of a notification. Returns its link, which begins with `base_url`.
    pub fn publish(
        &self,
        base_url: &str,
        of: &NotificationKey,
        picture: &Picture,
        now_ns: i64,
    ) -> io::Result<String> {
        let _publishing = PUBLISHING.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key()?;
        let id = hmac::sign(&key, format!("{ID_CONTEXT}{of}").as_bytes());
        let id = to_hex(&id.as_ref()[..ID_BYTES]);
        let path = self.dir.join(format!("{id}.png"));
        replace(&path, &picture.png)?;
        self.remove_others(&path)?;
        let expires = now_ns / SECOND_NS + VALIDITY_S;
        let signature = hmac::sign(&key, signed_text(&id, expires).as_bytes());
        let mut link = base_url.trim_end_matches('/').to_owned();
        // Writing to a string does not fail.
        _ = write!(link, "{PATH}{id}?expires={expires}&signature={}", to_hex(signature.as_ref()));
        Ok(link)
    }

    /// The PNG file of a link; `None` if the link is not valid, or not any more.
    pub fn read(&self, id: &str, expires: &str, signature: &str, now_ns: i64) -> Option<Vec<u8>> {
        let expires_s: i64 = expires.parse().ok()?;
        // One spelling per link.
        let is_spelled = expires_s.to_string() == expires;
        if !is_spelled || expires_s < now_ns / SECOND_NS {
            return None;
        }
        let key = read_key(&self.dir.join(KEY_NAME)).ok()?;
        let signature = from_hex(signature)?;
        // It takes the same time whichever byte differs.
        hmac::verify(&key, signed_text(id, expires_s).as_bytes(), &signature).ok()?;
        // An id that was signed is one of ours; no path hides in it all the same.
        from_hex(id).filter(|id| id.len() == ID_BYTES)?;
        let mut png = Vec::new();
        let file = File::open(self.dir.join(format!("{id}.png"))).ok()?;
        file.take(PICTURE_BYTES_MAX).read_to_end(&mut png).ok()?;
        Some(png)
    }

    fn key(&self) -> io::Result<hmac::Key> {
        let path = self.dir.join(KEY_NAME);
        match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
                let mut key = [0; KEY_BYTES];
                let failed = |_| io::Error::other("the system has no random bytes");
                SystemRandom::new().fill(&mut key).map_err(failed)?;
                replace(&path, format!("{}\n", to_hex(&key)).as_bytes())?;
                File::open(&self.dir)?.sync_all()?;
                Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
            }
            read => read,
        }
    }

    /// Removes the oldest pictures above the limit, and what writes that failed left. The picture
    /// that was just published becomes the newest, also after the clock was set back.
    fn remove_others(&self, published: &Path) -> io::Result<()> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            match path.extension().and_then(OsStr::to_str) {
                Some("png") if path != published => {
                    others.push((fs::metadata(&path)?.modified()?, path));
                }
                Some(NEW_EXTENSION) => fs::remove_file(path)?,
                _ => {}
            }
        }
        model::sort::by(&mut others, Ord::cmp);
        if let Some((newest, _)) = others.last()
            && fs::metadata(published)?.modified()? <= *newest
        {
            let file = File::options().write(true).open(published)?;
            file.set_modified(*newest + PUBLISHED_APART)?;
        }
        let excess = (others.len() + 1).saturating_sub(PICTURES_MAX);
        others.iter().take(excess).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn signed_text(id: &str, expires_s: i64) -> String {
    format!("{SIGNATURE_CONTEXT}{PATH}{id}\n{expires_s}\n")
}

fn read_key(path: &Path) -> io::Result<hmac::Key> {
    let mut text = String::new();
    // One byte more than the key, to detect a file that is too long.
    File::open(path)?.take(2 * KEY_BYTES as u64 + 2).read_to_string(&mut text)?;
    let key = from_hex(text.trim_end()).filter(|key| key.len() == KEY_BYTES);
    let invalid = || {
        let what = format!("cannot read {}: expected 64 hexadecimal digits", path.display());
        io::Error::other(what + "; remove the file, which makes links invalid")
    };
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key.ok_or_else(invalid)?))
}

/// Replaces a file by one that no other user can read.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(NEW_EXTENSION);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // On a full disk it would stay. The error of the write is returned.
        let _ = fs::remove_file(&new);
    })
}

/// Bytes of lower-case hexadecimal digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4) | digit(*low)?));
    bytes.collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW_NS: i64 = 1_700_000_000 * SECOND_NS;

    /// Directory of one test, removed on drop.
    struct LinksBench(PathBuf);

    impl LinksBench {
        fn new(name: &str) -> LinksBench {
            let name = format!("topdeck-links-{name}-{}", std::process::id());
            LinksBench(std::env::temp_dir().join(name))
        }

        fn links(&self) -> PictureLinks {
            PictureLinks::new(self.0.join("pictures"), "")
        }
    }

    impl Drop for LinksBench {
        fn drop(&mut self) {
            // What is left is in a temporary directory.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn publish(links: &PictureLinks, alert_id: &str, png: &[u8]) -> [String; 3] {
        let key = NotificationKey { alert_id: alert_id.to_owned(), transition: 1, reminder: 0 };
        let picture = Picture { png: png.to_vec(), alt: "latency".to_owned() };
        let link = links.publish("https://deck/", &key, &picture, NOW_NS).unwrap();
        let rest = link.strip_prefix("https://deck/v1/alert-pictures/").unwrap();
        let (id, rest) = rest.split_once("?expires=").unwrap();
        let (expires, signature) = rest.split_once("&signature=").unwrap();
        [id, expires, signature].map(str::to_owned)
    }

    #[test]
    fn a_link_opens_its_picture_until_it_expires() {
        let bench = LinksBench::new("valid");
        let links = bench.links();
        let [id, expires, signature] = publish(&links, "a", b"PNG");
        let read = |now_ns| bench.links().read(&id, &expires, &signature, now_ns);
        assert_eq!(read(NOW_NS).as_deref(), Some(&b"PNG"[..]));
        let end_ns = NOW_NS + VALIDITY_S * SECOND_NS;
        assert!(read(end_ns).is_some());
        assert!(read(end_ns + SECOND_NS).is_none());
        // A repeat has the same picture, also after a restart.
        assert_eq!(publish(&bench.links(), "a", b"PNG"), [id, expires, signature]);
    }

    /// Two contacts send the first notification at the same time.
    #[test]
    fn links_of_concurrent_contacts_open() {
        for round in 0..20 {
            let bench = LinksBench::new(&format!("concurrent-{round}"));
            let (links, png) = (bench.links(), b"a picture");
            std::thread::scope(|scope| {
                let all: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| publish(&links, "1", png))).collect();
                for link in all {
                    let [id, expires, signature] = link.join().unwrap();
                    assert!(
                        links
                            .read(&id, &expires, &signature, NOW_NS)
                            .is_some_and(|read| read == png)
                    );
                }
            });
        }
    }

    #[test]
    fn any_other_link_opens_nothing() {
        let bench = LinksBench::new("invalid");
        let links = bench.links();
        let [id, expires, signature] = publish(&links, "a", b"PNG a");
        let [other_id, ..] = publish(&links, "b", b"PNG b");
        let check = |id: &str, expires: &str, signature: &str| {
            assert!(links.read(id, expires, signature, NOW_NS).is_none(), "{id} {expires}");
        };
        check(&other_id, &expires, &signature);
        let later = (expires.parse::<i64>().unwrap() + 1).to_string();
        check(&id, &later, &signature);
        for spelled in [format!("+{expires}"), format!("0{expires}"), String::new()] {
            check(&id, &spelled, &signature);
        }
        for length in 0..signature.len() {
            check(&id, &expires, &signature[..length]);
        }
        check(&id, &expires, &signature.to_uppercase());
        check(&id, &expires, &format!("{signature}00"));
        for at in 0..signature.len() {
            let other = if &signature[at..=at] == "0" { "1" } else { "0" };
            let changed = format!("{}{other}{}", &signature[..at], &signature[at + 1..]);
            check(&id, &expires, &changed);
        }
        for path in ["../pictures/key", "key", ""] {
            check(path, &expires, &signature);
        }
        // Another node has another key.
        let other = LinksBench::new("other");
        publish(&other.links(), "a", b"PNG a");
        assert!(other.links().read(&id, &expires, &signature, NOW_NS).is_none());
    }

    #[test]
    fn no_other_user_can_read_the_key_and_it_is_kept() {
        let bench = LinksBench::new("key");
        let links = bench.links();
        publish(&links, "a", b"PNG");
        let path = bench.0.join("pictures/key");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let before = fs::read(&path).unwrap();
        publish(&bench.links(), "b", b"PNG");
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::write(&path, "short\n").unwrap();
        let key = NotificationKey { alert_id: "a".to_owned(), transition: 1, reminder: 0 };
        let picture = Picture { png: b"PNG".to_vec(), alt: String::new() };
        let error = links.publish("https://deck", &key, &picture, NOW_NS).unwrap_err();
        assert!(error.to_string().ends_with("remove the file, which makes links invalid"));
    }

    #[test]
    fn the_oldest_pictures_are_removed() {
        let bench = LinksBench::new("many");
        let links = bench.links();
        publish(&links, "a", b"PNG");
        for number in 0..PICTURES_MAX {
            fs::write(bench.0.join(format!("pictures/{number}.png")), b"PNG").unwrap();
        }
        let first = bench.0.join("pictures/7.png");
        let file = File::options().write(true).open(&first).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let [id, expires, signature] = publish(&links, "b", b"PNG b");
        assert!(!first.exists());
        assert!(links.read(&id, &expires, &signature, NOW_NS).is_some());
        let left = fs::read_dir(bench.0.join("pictures")).unwrap().count();
        assert_eq!(left, PICTURES_MAX + 1, "the pictures and the key");
    }

    /// A picture was removed as soon as it was published.
    #[test]
    fn pictures_are_kept_after_the_clock_was_set_back() {
        let bench = LinksBench::new("clock");
        let links = bench.links();
        let later = std::time::SystemTime::now() + Duration::from_secs(86_400);
        publish(&links, "a", b"PNG");
        for number in 0..PICTURES_MAX {
            let path = bench.0.join(format!("pictures/{number}.png"));
            File::create(path).unwrap().set_modified(later).unwrap();
        }
        let published = ["b", "c"].map(|alert| publish(&links, alert, b"PNG"));
        for [id, expires, signature] in published {
            assert!(links.read(&id, &expires, &signature, NOW_NS).is_some());
        }
    }

    #[test]
    fn failed_write_leaves_no_file() {
        let bench = LinksBench::new("failed");
        publish(&bench.links(), "a", b"PNG");
        let dir = bench.0.join("pictures");
        let taken = dir.join("b.png");
        fs::create_dir(&taken).unwrap();
        replace(&taken, b"PNG").unwrap_err();
        assert!(!dir.join("b.new").exists());
        fs::remove_dir(&taken).unwrap();
        // Of a process that was killed.
        fs::write(dir.join("c.new"), "PN").unwrap();
        publish(&bench.links(), "a", b"PNG");
        assert!(!dir.join("c.new").exists());
    }
}
