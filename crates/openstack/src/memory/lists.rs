//! Lists that many reconciles read: fetched once for all that read at the same time.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::objects::{
    Container, FloatingIp, Listener, LoadBalancer, Monitor, Network, Pool, Port, SecurityGroup,
};

/// A list and when it was asked for.
#[derive(Debug)]
pub(crate) struct Listed<T>(Mutex<Option<(Instant, Arc<Vec<T>>)>>);

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Listed<T> {
    /// The list as it was at `since` or later. A reconcile that comes while it is being fetched
    /// waits for it.
    pub(crate) async fn since(
        &self,
        since: Instant,
        fetch: impl AsyncFnOnce() -> Result<Vec<T>, ApiError>,
    ) -> Result<Arc<Vec<T>>, ApiError> {
        let mut cell = self.0.lock().await;
        if let Some((at, list)) = &*cell
            && *at >= since
        {
            return Ok(list.clone());
        }
        let at = Instant::now();
        let list = Arc::new(fetch().await?);
        *cell = Some((at, list.clone()));
        Ok(list)
    }

    /// The list as it was asked for last, and when that was.
    pub(crate) async fn at_hand(&self) -> Option<(Instant, Arc<Vec<T>>)> {
        self.0.lock().await.clone()
    }

    /// What a write of ours is known to have changed in the list. It gets no younger by that.
    pub(crate) async fn amend(&self, change: impl FnOnce(&mut Vec<T>))
    where
        T: Clone,
    {
        if let Some((_, list)) = &mut *self.0.lock().await {
            change(Arc::make_mut(list));
        }
    }
}

/// Lists of everything in the project.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) roster: Listed<(LoadBalancer, Instant)>,
    pub(crate) listeners: Listed<Listener>,
    pub(crate) pools: Listed<Pool>,
    pub(crate) monitors: Listed<Monitor>,
    pub(crate) floating_ips: Listed<FloatingIp>,
    pub(crate) networks: Listed<Network>,
    pub(crate) groups: Listed<SecurityGroup>,
    pub(crate) ports: Listed<Port>,
    pub(crate) containers: Listed<Container>,
}
