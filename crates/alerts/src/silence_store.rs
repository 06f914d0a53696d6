//! Silences of the node: in memory, and durable in the file `silences` of the data directory.
//!
//! A change is written before it is used. Expired silences are kept for 5 days, as in Alertmanager;
//! those that are taken out of the budgets of SLOs for 400.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{Disk, read_file, replace_file};
use journal::random_id;
use notify::{Silence, SilenceError, SilenceSet, SilenceState, decode_silences, encode_silences};

/// Name in the data directory; `docs/formats/silences.md`.
const FILE_NAME: &str = "silences";
/// Maximum size of the file. If it is exceeded, expired silences are dropped first.
const FILE_BYTES_MAX: usize = 16 << 20;
/// How long expired silences are kept: the default of Alertmanager.
const RETENTION_NS: i64 = 120 * 3600 * 1_000_000_000;
/// The same of maintenance windows that are taken out of budgets of SLOs: the longest period.
const CORRECTION_RETENTION_NS: i64 = 400 * 86_400 * 1_000_000_000;
/// Maximum number of silences, expired ones included, which are dropped first.
const SILENCES_MAX: usize = 10_000;

/// Calls after each change.
type ChangeFn = Box<dyn Fn(SilenceSet) + Send + Sync>;

/// All silences.
pub(crate) struct SilenceStore {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// [`FILE_BYTES_MAX`]; less in tests.
    file_bytes_max: usize,
    silences: Mutex<SilenceSet>,
    /// Held while a change is made.
    changing: Mutex<()>,
    on_change: ChangeFn,
}

impl fmt::Debug for SilenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SilenceStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why silences are not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SilenceStoreError {
    /// No silence has this id.
    #[error(
        "cannot find silence {0:?}: it does not exist, or expired more than 5 days ago; list \
             silences with `topdeck silences`"
    )]
    NotFound(String),
    /// The silence is invalid.
    #[error(transparent)]
    Invalid(#[from] SilenceError),
    /// A limit.
    #[error("cannot create silence: limit of {SILENCES_MAX} silences reached; expire some")]
    Count,
    /// A limit.
    #[error("cannot create silence: size limit (16 MiB) of all silences reached; expire some")]
    Size,
    /// The file cannot be written.
    #[error("cannot store silences: {0}; retry")]
    Write(String),
}

impl SilenceStore {
    /// Reads the file. If it is damaged, it is kept under another name, no alert is silenced, and
    /// the problem is returned.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        data: &Path,
        on_change: impl Fn(SilenceSet) + Send + Sync + 'static,
    ) -> (SilenceStore, Option<String>) {
        let path = data.join(FILE_NAME);
        let read = read_silences(&*disk, &path);
        let (silences, problem) = match read {
            Ok(silences) => (silences, None),
            Err(cause) => {
                let kept = path.with_added_extension("damaged");
                let kept = match disk.rename(&path, &kept) {
                    Ok(()) => format!(", kept as {}", kept.display()),
                    Err(_) => String::new(),
                };
                (Vec::new(), Some(format!("{cause}{kept}; no alert is silenced")))
            }
        };
        let (silences, changing) = (Mutex::new(SilenceSet::new(silences)), Mutex::default());
        let on_change = Box::new(on_change);
        let file_bytes_max = FILE_BYTES_MAX;
        let store = SilenceStore { disk, path, file_bytes_max, silences, changing, on_change };
        (store, problem)
    }

    /// All silences.
    pub(crate) fn snapshot(&self) -> SilenceSet {
        lock(&self.silences).clone()
    }

    /// A silence.
    pub(crate) fn find(&self, id: &str) -> Result<Silence, SilenceStoreError> {
        let silences = self.snapshot();
        let found = silences.as_slice().iter().find(|silence| silence.id == id).cloned();
        found.ok_or_else(|| SilenceStoreError::NotFound(id.to_owned()))
    }

    /// Creates a silence, or changes the one with its id as Alertmanager does: if the change is not
    /// one of an unexpired silence into the future, the old silence expires and another one is
    /// created. Returns the id. The same change again has no effect.
    pub(crate) fn set(&self, mut new: Silence, now_ns: i64) -> Result<String, SilenceStoreError> {
        let _changing = lock(&self.changing);
        new.check(now_ns)?;
        new.updated_ns = now_ns;
        let mut all = self.snapshot().as_slice().to_vec();
        if new.id.is_empty() {
            new.starts_ns = new.starts_ns.max(now_ns);
        } else {
            let at = all.iter().position(|silence| silence.id == new.id);
            let at = at.ok_or_else(|| SilenceStoreError::NotFound(new.id.clone()))?;
            let old = &all[at];
            // Clients send the start without its nanoseconds.
            if is_same_second(old.starts_ns, new.starts_ns) {
                new.starts_ns = old.starts_ns;
            }
            if is_same(old, &new) {
                return Ok(new.id);
            }
            if can_update(old, &new, now_ns) {
                let id = new.id.clone();
                all[at] = new;
                self.replace(all, now_ns)?;
                return Ok(id);
            }
            new.starts_ns = new.starts_ns.max(now_ns);
            if old.state(now_ns) != SilenceState::Expired {
                expire(&mut all[at], now_ns);
            }
        }
        new.id = new_uuid();
        let id = new.id.clone();
        all.push(new);
        self.replace(all, now_ns)?;
        Ok(id)
    }

    /// Ends a silence. One that has ended already stays as it is.
    pub(crate) fn expire(&self, id: &str, now_ns: i64) -> Result<Silence, SilenceStoreError> {
        let _changing = lock(&self.changing);
        let mut all = self.snapshot().as_slice().to_vec();
        let at = all.iter().position(|silence| silence.id == id);
        let at = at.ok_or_else(|| SilenceStoreError::NotFound(id.to_owned()))?;
        if all[at].ends_ns > now_ns {
            expire(&mut all[at], now_ns);
            let expired = all[at].clone();
            self.replace(all, now_ns)?;
            return Ok(expired);
        }
        Ok(all.swap_remove(at))
    }

    /// Writes the silences, then uses them.
    fn replace(&self, mut all: Vec<Silence>, now_ns: i64) -> Result<(), SilenceStoreError> {
        let retention_ns = |silence: &Silence| match silence.corrects_slos() {
            true => CORRECTION_RETENTION_NS,
            false => RETENTION_NS,
        };
        all.retain(|one| one.ends_ns > now_ns.saturating_sub(retention_ns(one)));
        while all.len() > SILENCES_MAX {
            remove_oldest_expired(&mut all, now_ns).ok_or(SilenceStoreError::Count)?;
        }
        let mut text = encode_silences(&all);
        while text.len() > self.file_bytes_max {
            let mut excess = text.len() - self.file_bytes_max;
            while excess > 0 {
                let Some(removed) = remove_oldest_expired(&mut all, now_ns) else { break };
                // With a title, so this is too much: the next turn has the rest.
                excess = excess.saturating_sub(encode_silences(&[removed]).len());
            }
            let shorter = encode_silences(&all);
            if shorter.len() == text.len() {
                return Err(SilenceStoreError::Size);
            }
            text = shorter;
        }
        replace_file(&*self.disk, &self.path, text.as_bytes())
            .map_err(|error| SilenceStoreError::Write(error.to_string()))?;
        let silences = SilenceSet::new(all);
        *lock(&self.silences) = silences.clone();
        (self.on_change)(silences);
        Ok(())
    }
}

fn read_silences(disk: &dyn Disk, path: &Path) -> Result<Vec<Silence>, String> {
    let failed = |cause: String| format!("cannot read silences: {cause}");
    let bytes = read_file(disk, path, FILE_BYTES_MAX as u64);
    let Some(bytes) = bytes.map_err(|error| failed(error.to_string()))? else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8(bytes).map_err(|_| failed("the file is not text".to_owned()))?;
    decode_silences(&text).map_err(|error| error.to_string())
}

/// Removes the expired silence that ended first. Budgets depend on those that correct them, which
/// are the last ones.
fn remove_oldest_expired(all: &mut Vec<Silence>, now_ns: i64) -> Option<Silence> {
    let expired = all.iter().enumerate().filter(|(_, one)| one.ends_ns <= now_ns);
    let (at, _) = expired.min_by_key(|(_, one)| (one.corrects_slos(), one.ends_ns))?;
    Some(all.remove(at))
}

/// Ends a silence; one that has not begun never silences.
fn expire(silence: &mut Silence, now_ns: i64) {
    silence.starts_ns = silence.starts_ns.min(now_ns);
    silence.ends_ns = now_ns;
    silence.updated_ns = now_ns;
}

fn has_same_matchers(old: &Silence, new: &Silence) -> bool {
    let texts = |silence: &Silence| -> Vec<String> {
        let mut texts: Vec<String> = silence.matchers.iter().map(ToString::to_string).collect();
        texts.sort_unstable();
        texts
    };
    let intervals = |silence: &Silence| -> Vec<String> {
        silence.recurrences.iter().map(|one| one.to_json().to_string()).collect()
    };
    texts(old) == texts(new) && intervals(old) == intervals(new)
}

fn is_same(old: &Silence, new: &Silence) -> bool {
    has_same_matchers(old, new)
        && (old.starts_ns, old.ends_ns) == (new.starts_ns, new.ends_ns)
        && (&old.created_by, &old.comment) == (&new.created_by, &new.comment)
        && old.annotations == new.annotations
}

/// Whether a silence is changed in place (Alertmanager: `silence.go`, `canUpdate`).
fn can_update(old: &Silence, new: &Silence, now_ns: i64) -> bool {
    if !has_same_matchers(old, new) || old.ends_ns <= now_ns {
        return false;
    }
    match old.starts_ns <= now_ns {
        true => new.starts_ns == old.starts_ns,
        false => new.starts_ns >= now_ns,
    }
}

fn is_same_second(a_ns: i64, b_ns: i64) -> bool {
    a_ns.div_euclid(1_000_000_000) == b_ns.div_euclid(1_000_000_000)
}

/// A UUID of version 4: clients of Alertmanager check the format.
fn new_uuid() -> String {
    let random = random_id() & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{random:032x}");
    let [a, b, c, d, e] = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// A panic leaves each of these values usable: they change in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
