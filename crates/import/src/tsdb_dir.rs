//! Data directory of Prometheus: its blocks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Version of `meta.json`.
const META_VERSION: u64 = 1;

/// Data directory of Prometheus.
pub(crate) struct TsdbDir {
    /// Blocks by time, then those that cannot be used.
    pub(crate) blocks: Vec<Result<TsdbBlock>>,
    /// Whether there is a write-ahead log beside the blocks.
    pub(crate) has_wal: bool,
}

/// Block of a data directory.
pub(crate) struct TsdbBlock {
    pub(crate) dir: PathBuf,
    pub(crate) id: String,
    /// Counts in `meta.json`; early versions of Prometheus did not write them.
    pub(crate) series_count: Option<u64>,
    pub(crate) chunk_count: Option<u64>,
    start_ms: i64,
    /// Blocks that were compacted into this one.
    parents: Vec<String>,
}

impl TsdbDir {
    /// Finds the blocks of a directory, which may be a block itself.
    pub(crate) fn open(dir: &Path) -> Result<TsdbDir> {
        if dir.join("meta.json").exists() {
            return Ok(TsdbDir { blocks: vec![TsdbBlock::open(dir)], has_wal: false });
        }
        let cannot = || format!("cannot read {}", dir.display());
        let mut blocks = Vec::new();
        for entry in fs::read_dir(dir).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            // Prometheus removes unfinished blocks, such as NAME.tmp-for-creation, at its start.
            if path.join("meta.json").exists() && path.extension().is_none() {
                blocks.push(TsdbBlock::open(&path));
            }
        }
        let has_wal = ["wal", "wbl", "chunks_head"].iter().any(|name| {
            let files = fs::read_dir(dir.join(name));
            files.is_ok_and(|mut files| files.next().is_some())
        });
        if blocks.is_empty() {
            let cause = match has_wal {
                true => "all of its data is still in the write-ahead log, which is not read",
                false => "it has no blocks (directories with meta.json)",
            };
            bail!(
                "cannot import {}: {cause}; name the data directory of a Prometheus, or a snapshot \
                 of it ({SNAPSHOT_REQUEST})",
                dir.display()
            );
        }
        // After a crash, blocks may remain that were compacted into another one.
        let parents: Vec<String> =
            blocks.iter().flatten().flat_map(|block| block.parents.clone()).collect();
        blocks.retain(|block| !block.as_ref().is_ok_and(|block| parents.contains(&block.id)));
        model::sort::by_key(&mut blocks, |block| match block {
            Ok(block) => (block.start_ms, block.id.clone()),
            Err(_) => (i64::MAX, String::new()),
        });
        Ok(TsdbDir { blocks, has_wal })
    }
}

/// How a Prometheus is asked for a snapshot, which has the data of the write-ahead log.
pub(crate) const SNAPSHOT_REQUEST: &str = "POST /api/v1/admin/tsdb/snapshot";

impl TsdbBlock {
    fn open(dir: &Path) -> Result<TsdbBlock> {
        let path = dir.join("meta.json");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let meta: Value = serde_json::from_slice(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        let version = meta["version"].as_u64();
        if version != Some(META_VERSION) {
            bail!("{}: found version {}, expected {META_VERSION}", path.display(), meta["version"]);
        }
        let (id, start_ms) =
            meta["ulid"].as_str().zip(meta["minTime"].as_i64()).with_context(|| {
                format!("{}: found other keys, expected ulid and minTime", path.display())
            })?;
        let parents = meta["compaction"]["parents"].as_array().map_or(&[][..], Vec::as_slice);
        let parents = parents.iter().filter_map(|parent| parent["ulid"].as_str());
        let parents = parents.filter(|parent| *parent != id).map(str::to_owned).collect();
        Ok(TsdbBlock {
            dir: dir.to_owned(),
            id: id.to_owned(),
            series_count: meta["stats"]["numSeries"].as_u64(),
            chunk_count: meta["stats"]["numChunks"].as_u64(),
            start_ms,
            parents,
        })
    }

    /// Size of all chunk files in bytes, for the progress; 0 if unknown.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let files = fs::read_dir(self.dir.join("chunks")).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }
}
