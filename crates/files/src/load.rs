//! Reading manifests once: for checks and plans, without a store and without watching.

use std::io;
use std::path::PathBuf;

use landfall_model::reason::Reason;
use landfall_model::rows::Fact;

use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::reported::appeared;

/// What the manifests say.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Everything that could be read, what others depend on first. Services have no status, and the
    /// identity that [`crate::Manifests`] would give them.
    pub facts: Vec<Fact>,
    /// Everything that is wrong, in the order of files and lines.
    pub reasons: Vec<Reason>,
}

/// Reads files, folders and standard input (`-`) once. Blocks. A path that is not there is a reason
/// like any other.
pub fn load(paths: &[PathBuf], recursive: bool) -> Loaded {
    load_with(paths, recursive, &mut io::stdin())
}

/// Reads manifests that were sent instead of files. Reasons name them `-`.
pub fn load_text(mut text: &[u8]) -> Loaded {
    load_with(&[PathBuf::from("-")], false, &mut text)
}

pub(crate) fn load_with(paths: &[PathBuf], recursive: bool, stdin: &mut dyn io::Read) -> Loaded {
    let mut disk = Disk::new(paths.to_vec(), recursive, None);
    let mut catalog = Catalog::default();
    catalog.update(disk.look(stdin).survey);
    let merged = catalog.merged();
    let mut reasons: Vec<Reason> = merged.problems.into_values().flatten().collect();
    reasons.sort_by(|one, other| place(one).cmp(&place(other)));
    Loaded {
        facts: merged.objects.values().map(appeared).collect(),
        reasons,
    }
}

fn place(reason: &Reason) -> Option<(&str, u32)> {
    let origin = reason.origin.as_ref()?;
    Some((&origin.file, origin.line))
}
