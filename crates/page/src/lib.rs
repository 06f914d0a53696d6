//! Web UI assets embedded in the binary. The UI loads nothing from other hosts.
//!
//! A binary that was built without `web/dist` has no assets: that is a build for tests, or one with
//! `TOPDECK_WITHOUT_PAGE=1`.
#![forbid(unsafe_code)]

#[cfg(test)]
mod page_requirement;

use std::io::Read as _;

use flate2::read::GzDecoder;

/// File of the web UI.
#[derive(Debug)]
pub struct Asset {
    /// URL path: `/index.html`, `/assets/…`.
    pub path: &'static str,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Entity tag, which depends on the bytes.
    pub etag: &'static str,
    /// The contents, compressed with gzip.
    pub gzip_bytes: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Whether the binary contains the web UI.
pub const IS_EMBEDDED: bool = !ASSETS.is_empty();

/// Response to `/` if there are no assets.
pub const MISSING_TEXT: &str = "\
This topdeck was built without its web UI. Everything else works: ingest, the API (described at
/v1/openapi.json), the Prometheus API for Grafana, and the commands of `topdeck --help`.

To get the page, install Node.js 20.19 or newer with npm, and run in topdeck's source directory

    make run

or, for an installed binary,

    cargo xtask page
    cargo install --locked --path crates/topdeck
";

/// All assets.
pub fn assets() -> &'static [Asset] {
    ASSETS
}

/// The asset at a path; `/` is `/index.html`.
pub fn find_asset(path: &str) -> Option<&'static Asset> {
    let path = if path == "/" { "/index.html" } else { path };
    ASSETS.iter().find(|file| file.path == path)
}

impl Asset {
    /// The uncompressed contents.
    pub fn decompress(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gzip_bytes).read_to_end(&mut bytes).expect("BUG: packed by the build");
        bytes
    }

    /// Whether the path contains a hash of the contents, so that browsers may cache it for ever.
    pub fn is_content_addressed(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Maximum transfer size of the first load, whichever view it opens, in bytes.
    const FIRST_VIEW_BYTES_MAX: usize = 120 << 10;
    /// Maximum size of all assets in the binary, in bytes.
    const GZIP_BYTES_MAX: usize = 220 << 10;

    /// Adds a script, and the scripts that load with it.
    fn add_scripts(path: &str, loaded: &mut BTreeSet<&'static str>) {
        let script = find_asset(path).unwrap_or_else(|| panic!("{path} is missing"));
        if !loaded.insert(script.path) {
            return;
        }
        let text = String::from_utf8(script.decompress()).unwrap();
        for start in ["from\"./", "import\"./", "from`./", "import`./"] {
            for (at, _) in text.match_indices(start) {
                let name = &text[at + start.len()..];
                let end = name.find(['"', '`']).unwrap();
                add_scripts(&format!("/assets/{}", &name[..end]), loaded);
            }
        }
    }

    /// Name of an asset without its hash. A style sheet has that of its script, and is loaded with
    /// it.
    fn stem(path: &str) -> Option<&str> {
        path.rsplit('/').next()?.split('-').next()
    }

    #[test]
    fn each_view_is_small_as_the_first_one() {
        let scripts = || assets().iter().filter(|file| file.path.ends_with(".js"));
        let is_entry = |file: &&Asset| file.path.starts_with("/assets/index-");
        let Some(entry) = scripts().find(is_entry) else { return };
        let is_of_script = |file: &Asset| {
            file.path.ends_with(".css") && scripts().any(|one| stem(one.path) == stem(file.path))
        };
        let mut opened = 0;
        for script in scripts() {
            let mut loaded = BTreeSet::new();
            add_scripts(entry.path, &mut loaded);
            add_scripts(script.path, &mut loaded);
            let is_loaded = |file: &&Asset| match file.path.ends_with(".js") {
                true => loaded.contains(file.path),
                false if is_of_script(file) => {
                    loaded.iter().any(|path| stem(path) == stem(file.path))
                }
                false => true,
            };
            let files = assets().iter().filter(is_loaded);
            let bytes: usize = files.map(|file| file.gzip_bytes.len()).sum();
            assert!(bytes <= FIRST_VIEW_BYTES_MAX, "{bytes} bytes with {}", script.path);
            opened += 1;
        }
        assert!(opened > 9, "{opened} scripts");
    }

    #[test]
    fn assets_are_small_and_complete() {
        let packed: usize = assets().iter().map(|file| file.gzip_bytes.len()).sum();
        assert!(packed <= GZIP_BYTES_MAX, "{packed} bytes");
        let Some(page) = find_asset("/") else { return };
        let text = String::from_utf8(page.decompress()).unwrap();
        // Assets are relative: a proxy may serve the page below a path.
        assert!(!text.contains("\"/"), "{text}");
        for path in text.split('"').filter_map(|quoted| quoted.strip_prefix('.')) {
            assert!(find_asset(path).is_some(), "{path}");
        }
        assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
    }
}
