//! Lists that many reconciles read: fetched once for all that read at the same time.

use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::ApiError;
use crate::objects::{
    Container, FloatingIp, Listener, LoadBalancer, Monitor, Network, Pool, Port, SecurityGroup,
};

/// A list and when it was asked for.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    list: Mutex<Option<(Instant, Arc<Vec<T>>)>>,
    /// Lists from before are void.
    begin: std::sync::Mutex<Option<Instant>>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            begin: std::sync::Mutex::default(),
        }
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
        let mut cell = self.list.lock().await;
        if let Some((at, list)) = &*cell
            && *at >= since
            && self.is_valid(*at)
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
        let list = self.list.lock().await.clone();
        list.filter(|(at, _)| self.is_valid(*at))
    }

    /// Makes void what was asked for before now.
    fn expire(&self, now: Instant) {
        *self.begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    fn is_valid(&self, at: Instant) -> bool {
        let begin = *self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        begin.is_none_or(|begin| at >= begin)
    }

    /// What a write of ours is known to have changed in the list. It gets no younger by that.
    pub(crate) async fn amend(&self, change: impl FnOnce(&mut Vec<T>))
    where
        T: Clone,
    {
        if let Some((_, list)) = &mut *self.list.lock().await {
            change(Arc::make_mut(list));
        }
    }

    /// Puts in what a write of ours has made, once: a list that was fetched meanwhile may have it.
    pub(crate) async fn put<K: PartialEq>(&self, made: T, key: impl Fn(&T) -> &K)
    where
        T: Clone,
    {
        let put = |all: &mut Vec<T>| {
            all.retain(|it| key(it) != key(&made));
            all.push(made);
        };
        self.amend(put).await;
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

// === impl Lists ===

impl Lists {
    /// Makes all void: another writer has been at work since.
    pub(crate) fn expire(&self, now: Instant) {
        let Self {
            roster,
            listeners,
            pools,
            monitors,
            floating_ips,
            networks,
            groups,
            ports,
            containers,
        } = self;
        roster.expire(now);
        listeners.expire(now);
        pools.expire(now);
        monitors.expire(now);
        floating_ips.expire(now);
        networks.expire(now);
        groups.expire(now);
        ports.expire(now);
        containers.expire(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_made_while_a_list_is_fetched_is_in_it_once() {
        let list = Listed::<(u8, char)>::default();
        let fetched = list.since(Instant::now(), async || Ok(vec![(1, 'a'), (2, 'b')]));
        fetched.await.unwrap();
        list.put((2, 'c'), |it| &it.0).await;
        list.put((3, 'd'), |it| &it.0).await;
        let (_, all) = list.at_hand().await.unwrap();
        assert_eq!(*all, [(1, 'a'), (2, 'c'), (3, 'd')]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_from_before_another_led_is_asked_for_again() {
        let lists = Lists::default();
        let begin = Instant::now();
        let read = async |now: u16| {
            let port = Port {
                id: crate::objects::Id::new(&now.to_string()),
                ..Port::default()
            };
            let list = lists.ports.since(begin, async || Ok(vec![port])).await;
            list.unwrap()[0].id.to_string()
        };
        assert_eq!(read(1).await, "1");
        assert_eq!(read(2).await, "1");
        tokio::time::advance(Duration::from_secs(1)).await;
        lists.expire(Instant::now());
        assert!(lists.ports.at_hand().await.is_none());
        assert_eq!(read(3).await, "3");
        assert_eq!(read(4).await, "3");
    }
}
