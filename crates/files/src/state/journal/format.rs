//! The lines of a journal that are not its entries: the first one, and those that conclude batches.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The format of the journal.
pub(crate) const FORMAT: u64 = 2;

/// The end of what is on the disk for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) place: u64,
    pub(super) commits: u64,
    pub(super) digest: [u8; 32],
}

#[derive(Serialize, Deserialize)]
pub(super) struct Header<'a> {
    pub(super) landfall: Cow<'a, str>,
    pub(super) format: u64,
    /// Identifies the journal, so that none can seem to go on in what is left of another one.
    #[serde(default)]
    pub(super) written: Option<jiff::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) migrated: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct BatchEnd<'a> {
    pub(super) commit: u64,
    #[serde(borrow)]
    pub(super) sha256: Cow<'a, str>,
}

/// Returns the first line of a journal.
pub(super) fn header(migrated: Option<String>) -> String {
    let header = Header {
        landfall: "state".into(),
        format: FORMAT,
        written: Some(jiff::Timestamp::now()),
        migrated,
    };
    // Two texts, a number and a time always have a JSON form.
    serde_json::to_string(&header).unwrap_or_default()
}

/// The digest of a batch, before its lines: it depends on all that stands before it in the file.
pub(super) fn begin(end: &End) -> Sha256 {
    let mut digest = Sha256::new();
    digest.update(end.digest);
    digest.update((end.commits + 1).to_le_bytes());
    digest
}

/// The first half of a digest is enough for people and for accidents.
pub(super) fn shown(digest: &[u8; 32]) -> String {
    let mut text = String::with_capacity(32);
    for byte in digest.iter().take(16) {
        // Writing into a text can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
