//! Changes of one listener follow each other, and those of several need not.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tokio::sync::{
    Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use crate::identity::ListenerId;

/// So many listeners are changed at the same time at most.
const TURNS: usize = 64;

/// Whose turn it is: changes of one listener follow each other, and those of several need not.
#[derive(Debug)]
pub(super) struct Turns {
    /// By a hash of the listener.
    places: [AsyncMutex<()>; TURNS],
    /// Held for all of them.
    pub(super) all: RwLock<()>,
}

/// A turn, until it is dropped.
#[expect(dead_code, reason = "they end with it")]
pub(super) struct Turn<'a>(RwLockReadGuard<'a, ()>, AsyncMutexGuard<'a, ()>);

impl Default for Turns {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| AsyncMutex::default()),
            all: RwLock::default(),
        }
    }
}

impl Turns {
    /// Waits until nothing else changes this listener.
    pub(super) async fn of(&self, id: ListenerId) -> Turn<'_> {
        let all = self.all.read().await;
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let [first, ..] = &self.places;
        let number = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
        let place = self.places.get(number).unwrap_or(first);
        Turn(all, place.lock().await)
    }

    /// Waits until no listener is being changed, and keeps it so.
    pub(super) async fn all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_model::{ListenerKey, Protocol};

    use super::*;

    fn id(port: u16) -> ListenerId {
        ListenerId {
            address: [127, 0, 0, 1].into(),
            key: ListenerKey {
                protocol: Protocol::Tcp,
                port: port.try_into().unwrap(),
            },
        }
    }

    /// What comes without waiting.
    async fn at_once<T>(turn: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::ZERO, turn).await.ok()
    }

    #[tokio::test]
    async fn changes_of_one_listener_follow_each_other_and_those_of_several_need_not() {
        let turns = Turns::default();
        let first = turns.of(id(80)).await;
        assert!(at_once(turns.of(id(80))).await.is_none());
        let mut others = 0;
        for port in 81..90 {
            others += usize::from(at_once(turns.of(id(port))).await.is_some());
        }
        assert!(others > 0);
        drop(first);
        assert!(at_once(turns.of(id(80))).await.is_some());
    }

    #[tokio::test]
    async fn an_operation_on_all_listeners_waits_for_every_change() {
        let turns = Turns::default();
        let change = turns.of(id(80)).await;
        assert!(at_once(turns.all()).await.is_none());
        drop(change);
        let all = turns.all().await;
        assert!(at_once(turns.of(id(81))).await.is_none());
        drop(all);
        assert!(at_once(turns.of(id(81))).await.is_some());
    }
}
