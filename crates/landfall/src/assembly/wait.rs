//! Waiting for an instance to get somewhere.

use std::time::Duration;

use anyhow::Context as _;
use landfall_engine::store::Snapshot;
use landfall_model::view::InstanceView;

use super::{Instance, LOOK};
use crate::admin::view;

impl Instance {
    /// Waits until everything is known and was handled once. Of ten thousand Services a picture
    /// takes a while to draw, so only the last one is drawn.
    ///
    /// # Errors
    /// It is not so in time.
    pub async fn wait_ready(&self, limit: Duration) -> anyhow::Result<InstanceView> {
        let wait = async {
            while !self.handle.store.read(Snapshot::ready) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(limit, wait)
            .await
            .with_context(|| format!("not ready after {} s", limit.as_secs()))?;
        Ok(view::instance(&self.handle, &self.started))
    }

    /// Waits for a picture of which something is true.
    ///
    /// # Errors
    /// It did not become true in time.
    pub async fn wait_until(
        &self,
        time_limit: Duration,
        met: impl Fn(&InstanceView) -> bool,
    ) -> anyhow::Result<InstanceView> {
        let wait = async {
            loop {
                let view = view::instance(&self.handle, &self.started);
                if met(&view) {
                    return view;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(time_limit, wait)
            .await
            .with_context(|| format!("not ready after {} s", time_limit.as_secs()))
    }
}
