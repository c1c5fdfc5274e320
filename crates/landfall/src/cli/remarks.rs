//! What is said at the start about the reference's flags.

/// What was given of the reference's command line, beyond what Landfall has under another name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceArgs {
    /// Whether details are logged.
    pub(super) verbose: bool,
    /// What is said about flags at the start.
    pub(super) remarks: Vec<Remark>,
}

/// A flag that has no effect, or less than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) flag: &'static str,
    pub(super) why: &'static str,
    /// Whether something may be missing now.
    pub(super) matters: bool,
}

// === impl ReferenceArgs ===

impl ReferenceArgs {
    /// The level of the log where the environment does not say it.
    pub fn level(&self) -> &'static str {
        if self.verbose { "debug" } else { "info" }
    }

    /// Says in the log what has no effect.
    pub fn report(&self) {
        for Remark { flag, why, matters } in &self.remarks {
            if *matters {
                tracing::warn!("--{flag}: {why}");
            } else {
                tracing::info!("--{flag} has no effect: {why}");
            }
        }
    }
}
