//! Manifests as text, to be sent to a running instance: which file each line came from is kept, so
//! that its answer can name it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use landfall_files::Loaded;
use landfall_model::reason::{Origin, Reason};

use crate::dry_run::DryRunReport;

/// Between two files: they are documents of one stream then.
const SEPARATOR: &str = "\n---\n";

/// The manifests of a command, file by file.
#[derive(Debug)]
pub struct Texts {
    parts: Vec<(Arc<str>, Vec<u8>)>,
}

/// Reads files, folders and standard input.
pub async fn concatenated(paths: &[PathBuf], recursive: bool) -> anyhow::Result<Texts> {
    let paths = paths.to_vec();
    tokio::task::spawn_blocking(move || {
        let mut parts = Vec::new();
        for path in &paths {
            gather(path, recursive, true, &mut parts)?;
        }
        Ok(Texts { parts })
    })
    .await?
}

// === impl Texts ===

impl Texts {
    /// All files as one stream of documents.
    pub fn joined(&self) -> Vec<u8> {
        let texts: Vec<&[u8]> = self.parts.iter().map(|(_, text)| text.as_slice()).collect();
        texts.join(SEPARATOR.as_bytes())
    }

    /// What they say, read here. Places are those of the stream.
    pub fn loaded(&self) -> Loaded {
        landfall_files::load_text(&self.joined())
    }

    /// Puts the files' names and lines in place of those of the stream.
    pub fn place(&self, outlook: &mut DryRunReport) {
        let about_services = outlook.plans.iter_mut().flat_map(|plan| &mut plan.reasons);
        for reason in outlook.problems.iter_mut().chain(about_services) {
            self.place_reason(reason);
        }
    }

    fn place_reason(&self, reason: &mut Reason) {
        if let Some(origin) = &mut reason.origin
            && &*origin.file == "-"
        {
            *origin = self.origin_of(origin.line);
        }
    }

    fn origin_of(&self, line: u32) -> Origin {
        let mut before = 0;
        let mut found = Origin {
            file: "-".into(),
            line,
        };
        for (name, text) in &self.parts {
            if line <= before {
                break;
            }
            found = Origin {
                file: name.clone(),
                line: line - before,
            };
            let newlines = text.split(|byte| *byte == b'\n').count() - 1;
            let separator = SEPARATOR.matches('\n').count();
            before += u32::try_from(newlines + separator).unwrap_or(u32::MAX);
        }
        found
    }
}

fn gather(
    path: &Path,
    recursive: bool,
    named: bool,
    parts: &mut Vec<(Arc<str>, Vec<u8>)>,
) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let failed = || format!("reading {name}");
    if named && name == "-" {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .context("reading standard input")?;
        parts.push((name.into(), text));
        return Ok(());
    }
    if path.is_dir() {
        if !named && !recursive {
            return Ok(());
        }
        let entries = std::fs::read_dir(path).with_context(failed)?;
        let mut inner = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .with_context(failed)?;
        inner.sort();
        return inner
            .iter()
            .try_for_each(|path| gather(path, recursive, false, parts));
    }
    let is_manifest = path
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| matches!(extension, "yaml" | "yml" | "json"));
    if named || is_manifest {
        let text = std::fs::read(path).with_context(failed)?;
        parts.push((name.into(), text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_stream_lead_back_to_the_files() {
        let texts = Texts {
            parts: vec![
                ("a.yaml".into(), b"one\ntwo".to_vec()),
                ("b.yaml".into(), b"three\nfour\n".to_vec()),
                ("c.yaml".into(), b"five".to_vec()),
            ],
        };
        let joined = String::from_utf8(texts.joined()).unwrap();
        for (word, file, line) in [
            ("one", "a.yaml", 1),
            ("two", "a.yaml", 2),
            ("four", "b.yaml", 2),
            ("five", "c.yaml", 1),
        ] {
            let at = joined.lines().position(|text| text == word).unwrap() + 1;
            let origin = texts.origin_of(u32::try_from(at).unwrap());
            assert_eq!((&*origin.file, origin.line), (file, line), "{word}");
        }
    }
}
