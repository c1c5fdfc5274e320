//! Writing one batch.

use std::io;

use sha2::{Digest, Sha256};

use super::format::{BatchEnd, End, begin, shown};
use crate::state::folder::OpenFile;

/// Lines are handed to the disk in parts of this size.
const PART: usize = 256 * 1024;

/// Writes one batch from a place on.
pub(super) struct BatchWriter<'a> {
    medium: &'a mut dyn OpenFile,
    digest: Sha256,
    commits: u64,
    place: u64,
    waiting: Vec<u8>,
}

impl<'a> BatchWriter<'a> {
    pub(super) fn new(medium: &'a mut dyn OpenFile, end: End) -> Self {
        Self {
            medium,
            digest: begin(&end),
            commits: end.commits + 1,
            place: end.place,
            waiting: Vec::new(),
        }
    }

    /// Writes a line, and returns its size.
    pub(super) fn line(&mut self, text: &str) -> io::Result<u64> {
        let start = self.waiting.len();
        self.waiting.extend_from_slice(text.as_bytes());
        self.waiting.push(b'\n');
        self.digest
            .update(self.waiting.get(start..).unwrap_or_default());
        if self.waiting.len() >= PART {
            self.flush()?;
        }
        Ok(text.len() as u64 + 1)
    }

    /// Writes the line that makes the batch count.
    pub(super) fn conclude(mut self) -> io::Result<End> {
        let digest: [u8; 32] = self.digest.clone().finalize().into();
        let conclusion = BatchEnd {
            commit: self.commits,
            sha256: shown(&digest).into(),
        };
        let text = serde_json::to_string(&conclusion)?;
        self.waiting.extend_from_slice(text.as_bytes());
        self.waiting.push(b'\n');
        self.flush()?;
        Ok(End {
            place: self.place,
            commits: self.commits,
            digest,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.waiting.as_slice();
        while !rest.is_empty() {
            let written = match self.medium.write_at(rest, self.place) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.place += written as u64;
            rest = rest.get(written..).unwrap_or_default();
        }
        self.waiting.clear();
        Ok(())
    }
}
