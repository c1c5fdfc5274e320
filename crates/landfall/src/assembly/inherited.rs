//! What is open from before an instance was started, and when it is closed: listeners of an earlier
//! control plane of this process, and sockets that another process handed over.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_engine::claims;
use landfall_engine::store::{Record, Snapshot, StateStore};
use landfall_model::Uid;
use landfall_model::listener::ListenerKey;
use landfall_model::rows::ServiceRow;
use landfall_proxy::{ListenerId, Owner, Proxy};

use super::LOOK;

/// From one look for adopted sockets that no Service wants to the next.
const PAUSE: Duration = Duration::from_secs(2);

/// Closes those listeners of before whose Service is not known once all are.
pub(super) async fn close_what_is_gone(
    store: &StateStore,
    proxy: &Proxy,
    before: Vec<(ListenerId, Owner)>,
) {
    let mut changes = store.changes();
    while !store.read(Snapshot::serving) {
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    let known: BTreeSet<Uid> = store.read(|pages| {
        let records = pages.records.values();
        let rows = records.filter_map(Record::row);
        rows.map(|row| row.uid).collect()
    });
    for (id, owner) in before {
        if !known.contains(&owner.uid) && proxy.close(id, &owner.uid).await {
            let service = &owner.service;
            tracing::info!(%service, listener = %id, "closed: its Service is gone");
        }
    }
}

/// Closes adopted sockets that no Service wants. Every Service must have been handled. Returns
/// whether some are left, for listeners that could not be opened yet: clients wait there.
pub(super) fn close_unwanted(store: &StateStore, proxy: &Proxy) -> bool {
    let wanted = store.read(wanted);
    let closed = proxy.drop_adopted(|id| wanted.contains(&id));
    if closed > 0 {
        tracing::info!(
            listeners = closed,
            "closed a listener that no Service needs any more"
        );
    }
    proxy.has_adopted()
}

/// Does so after every change, until none is left.
pub(super) async fn follow_unwanted(store: &StateStore, proxy: &Proxy) {
    let mut changes = store.changes();
    while close_unwanted(store, proxy) {
        // Each look reads the records of all Services.
        tokio::time::sleep(PAUSE).await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Returns every listener that a Service may come to open.
fn wanted(pages: &Snapshot) -> BTreeSet<ListenerId> {
    pages.records.values().flat_map(listeners_of).collect()
}

/// The ports of the version that is served and of the newest one, at the addresses on record.
fn listeners_of(record: &Record) -> BTreeSet<ListenerId> {
    let Some(row) = record.row() else {
        return BTreeSet::new();
    };
    let row = ServiceRow {
        status: record.status(),
        ..row
    };
    let Some(claim) = claims::claim(&row).filter(|_| row.wants_load_balancer) else {
        return BTreeSet::new();
    };
    let newest = row.ports.iter().map(|port| ListenerKey {
        protocol: port.protocol,
        port: port.port,
    });
    let keys: BTreeSet<ListenerKey> = claim.ports.iter().copied().chain(newest).collect();
    let of = |address| {
        keys.iter()
            .map(move |key| ListenerId { address, key: *key })
    };
    claim.addresses.iter().copied().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use landfall_model::status::ACCEPTED_VERSION;
    use landfall_model::wire::accepted_to_text;
    use landfall_testkit::svc;

    use super::*;

    fn wanted_by(row: &ServiceRow) -> Vec<String> {
        let mut pages = Snapshot::default();
        pages
            .records
            .insert(row.key.clone(), Record::new(row.into()));
        wanted(&pages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_may_come_to_open_its_newest_ports_and_those_it_was_accepted_with() {
        let before = svc("web").port(80).row();
        let text = accepted_to_text(&before).unwrap();
        let newest = svc("web").port(81).holding("127.77.0.1");
        let row = newest.with(|row| {
            row.status.marks.insert(ACCEPTED_VERSION.to_owned(), text);
        });
        assert_eq!(
            wanted_by(&row.row()),
            ["127.77.0.1:80/TCP", "127.77.0.1:81/TCP"]
        );
    }

    #[test]
    fn a_service_without_an_address_or_of_another_type_opens_nothing() {
        assert_eq!(wanted_by(&svc("web").port(80).row()), [] as [&str; 0]);
        let other = svc("web").port(80).holding("127.77.0.1");
        let other = other.with(|row| row.wants_load_balancer = false);
        assert_eq!(wanted_by(&other.row()), [] as [&str; 0]);
    }
}
