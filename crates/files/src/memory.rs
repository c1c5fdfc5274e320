//! Manifests and a state directory in memory. For model tests of the whole controller, which play
//! thousands of lives of it: the source, the store and the journal are those of every process, and
//! only the files and the disk below them are not.

use std::sync::Arc;

use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};

use crate::blocking::Blocking;
use crate::identity;
pub use crate::memory_files::Files;
use crate::memory_files::FilesView;
use crate::registry::Registry;
pub use crate::sim_delay::SimDelay;
use crate::source::Manifests;
use crate::state::StateError;
use crate::state::sim::Sim;
pub use crate::state::sim::SimFault;
use crate::store::ManifestStore;

/// The disk of a state directory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StateDisk(Sim);

/// Starts serving files, and remembers on a disk.
///
/// # Errors
/// The state on the disk can't be used.
pub fn open(
    files: &Files,
    disk: &StateDisk,
    delay: SimDelay,
) -> Result<(Manifests, ManifestStore), StateError> {
    let (mut state, remembered) = disk.0.open()?;
    // Small as it is, the journal is rewritten once in every life.
    state.compact_soon();
    let registry = Registry::new(remembered);
    let store = ManifestStore::new(registry, Some(state), Blocking::Simulated(delay));
    let view = FilesView::new(files.clone());
    Ok((Manifests::open_in_memory(view, store.clone()), store))
}

/// Returns the identity of a Service whose manifest has none.
pub fn uid_of(key: &ServiceKey) -> Uid {
    identity::uid_of(key)
}

// === impl StateDisk ===

impl StateDisk {
    /// Returns the disk for the next process. The one before has no effect on it any more.
    #[must_use]
    pub fn next_life(&self) -> Self {
        Self(self.0.next_life())
    }

    /// The process that uses it dies, in the middle of whatever it does. Nothing works before
    /// [`Self::next_life`], and all that was written is there.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Loses power, and with it what was not synced or part of that. `choose` returns a number
    /// below the one that it is given. Nothing works before [`Self::next_life`].
    pub fn cut_power(&self, choose: impl FnMut(usize) -> usize) {
        self.0.cut_power(choose);
    }

    /// Lets something happen at the operation that is so many away.
    pub fn plan(&self, away: usize, trouble: SimFault) {
        self.0.plan(away, trouble);
    }

    /// There is no room from now on.
    pub fn fill(&self) {
        self.0.fill();
    }

    /// Everything works again, and nothing is planned.
    pub fn repair(&self) {
        self.0.repair();
    }

    /// Returns when an operation came to a [`SimFault::CutBefore`] or [`SimFault::CutAfter`].
    pub async fn went_off(&self) {
        self.0.went_off().await;
    }

    /// Returns how many operations there were.
    pub fn operations(&self) -> usize {
        self.0.operations()
    }

    /// Returns the Services that a process would find after a power cut now, of which all of what
    /// was not synced is left, or nothing.
    ///
    /// # Errors
    /// It would not understand what it finds.
    pub fn survivors(&self, keeps_all: bool) -> Result<Vec<Arc<ServiceRow>>, StateError> {
        let (_, remembered) = self.0.survivor(keeps_all).open()?;
        let found = Registry::new(remembered).take_changed();
        Ok(found.into_iter().filter_map(|(_, row)| row).collect())
    }
}
