//! The time that blocking work takes in a model test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long work that blocks takes.
#[derive(Clone)]
pub struct SimDelay(Arc<dyn Fn() -> Duration + Send + Sync>);

// === impl SimDelay ===

impl SimDelay {
    /// Takes each time as long as `draw` says.
    pub fn new(draw: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    pub(crate) fn draw(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for SimDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDelay")
    }
}
