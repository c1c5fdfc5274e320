//! What a command that serves prints once it does.

use std::time::Duration;

use crate::assembly::Instance;
use crate::logging;

use super::get;

/// How long a start may take before it is said that it takes longer.
const START: Duration = Duration::from_secs(5);

/// From one check of the instance to the next.
const LOOK: Duration = Duration::from_millis(20);

/// Says what is served and where to look, once there is something to say. Nothing depends on
/// whether that can be printed.
pub async fn announce(instance: &Instance) {
    let by = tokio::time::Instant::now() + START;
    let works = async {
        while !instance.handle().store.read(|pages| pages.at_work) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let works = tokio::time::timeout_at(by, works).await.is_ok();
    let left = by.saturating_duration_since(tokio::time::Instant::now());
    let found = match instance.wait_ready(left).await {
        Ok(_) if !works => "another process leads (the log names it); this one stands by, and \
                            serves once that one does not"
            .to_owned(),
        Ok(view) if view.services.is_empty() => {
            "no Services of type LoadBalancer in these manifests yet".to_owned()
        }
        Ok(view) => get::list(&view.services, false),
        Err(_) => "still starting; `landfall get services` shows the progress".to_owned(),
    };
    let printed = instance.admin().and_then(|admin| {
        logging::print(&format!(
            "{found}\n\nstatus page  http://{admin}/\nCtrl-C stops\n"
        ))
    });
    if let Err(error) = printed {
        tracing::debug!(%error, "the summary could not be printed");
    }
}
