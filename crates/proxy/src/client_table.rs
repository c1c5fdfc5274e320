//! What a listener remembers of clients that have no connection open. Each client that comes adds a
//! row, and a Service may have thousands of listeners: rows count as memory of the Service. Without
//! room for one more, the client that was seen least recently is forgotten.

use std::net::IpAddr;
use std::sync::Arc;

use crate::budget::{Account, Held};
use crate::recency::Recency;

/// A row takes at most about 128 bytes: so many are one unit of memory.
const ROWS: usize = crate::budget::units::UNIT / 128;

/// So many rows are not counted: most listeners never have more.
const FREE: usize = 32;

/// Rows by address, in the order of their last use.
#[derive(Debug)]
pub(crate) struct ClientTable<V> {
    rows: Recency<IpAddr, V>,
    most: usize,
    account: Arc<Account>,
    held: Vec<Held>,
}

// === impl ClientTable ===

impl<V> ClientTable<V> {
    /// An empty table that will never have more than `most` rows.
    pub(crate) fn new(most: usize, account: Arc<Account>) -> Self {
        Self {
            rows: Recency::new(most),
            most,
            account,
            held: Vec::new(),
        }
    }

    /// How many clients are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row of a client, marked as used just now.
    pub(crate) fn touch(&mut self, client: IpAddr) -> Option<&mut V> {
        self.rows.touch(&client)
    }

    /// Adds or replaces a row as the most recent one.
    pub(crate) fn insert(&mut self, client: IpAddr, value: V) {
        let grows = self.rows.len() < self.most && self.rows.get(&client).is_none();
        if grows && self.rows.len() >= FREE + self.held.len() * ROWS {
            match self.account.keep_memory(1) {
                Some(held) => self.held.push(held),
                None => drop(self.rows.pop_oldest()),
            }
        }
        self.rows.insert(client, value);
    }

    /// Forgets all clients.
    pub(crate) fn clear(&mut self) {
        self.rows = Recency::new(self.most);
        for held in self.held.drain(..) {
            self.account.give_back_memory(None, held);
        }
    }
}

impl<V> Drop for ClientTable<V> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use landfall_model::Uid;

    use super::*;
    use crate::budget::Budget;

    const MEBIBYTE: u64 = 1024 * 1024;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(10 << 24 | number).into()
    }

    #[test]
    fn clients_without_end_at_many_listeners_take_no_more_memory_than_their_service_may() {
        let budget = Budget::with_memory(4096, 16, 64 * MEBIBYTE);
        let rude = budget.account(&Uid::new("rude"), "rude");
        let victim = budget.account(&Uid::new("victim"), "victims");
        let mut tables: Vec<_> = (0..100)
            .map(|_| ClientTable::new(65_536, rude.clone()))
            .collect();
        for number in 0..20_000 {
            for table in &mut tables {
                table.insert(client(number), number);
            }
        }
        let rows: usize = tables.iter().map(ClientTable::len).sum();
        assert!(rows * 128 < 64 << 20, "{rows}");
        let used = budget.pressure().memory;
        assert!(rows * 128 <= used as usize + tables.len() * FREE * 128);
        assert!(victim.take_memory(8, None).is_ok());
        // The client that came last is known at each of them.
        assert!(
            tables
                .iter_mut()
                .all(|table| table.touch(client(19_999)).is_some())
        );
        drop(tables);
        assert!(budget.pressure().memory < 2 * MEBIBYTE);
    }

    #[test]
    fn a_table_that_is_cleared_holds_nothing_and_goes_on() {
        let budget = Budget::with_memory(4096, 16, 64 * MEBIBYTE);
        let mut table = ClientTable::new(1_000, budget.account(&Uid::new("web"), "shop"));
        for number in 0..3_000 {
            table.insert(client(number), ());
        }
        assert_eq!(table.len(), 1_000);
        assert!(budget.pressure().memory > 0);
        table.clear();
        assert_eq!((table.len(), budget.pressure().memory), (0, 0));
        table.insert(client(1), ());
        table.insert(client(1), ());
        assert_eq!(table.len(), 1);
    }
}
