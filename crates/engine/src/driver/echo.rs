//! What the source tells back of our own writing is no news: without this a status whose words change with every
//! attempt (a cloud that counts its requests in its messages) would call for the next attempt itself, past every
//! pause.

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::MARKS;

use super::{Engine, TOGETHER, clock};
use crate::report::Report;

impl<P: Provider, R: Report> Engine<P, R> {
    /// Whether a fact, which has not been taken in yet, is a Service of which nothing differs but what we write.
    pub(super) fn may_be_echo(&self, fact: &Fact) -> bool {
        let Fact::Service(now) = fact else {
            return false;
        };
        self.tracked.contains_key(&now.key)
            && self
                .world
                .service(&now.key)
                .is_some_and(|before| differs_in_writing(&before, now))
    }

    /// A Service has been told of, with nothing new but what may be our own writing. Asks for a pass if it is not.
    pub(super) fn hear(&mut self, key: &ServiceKey) {
        if self.queue.is_running(key) {
            self.heard.insert(key.clone());
            return;
        }
        let row = self.world.service(key);
        let tracked = self.tracked.get_mut(key);
        if let (Some(row), Some(tracked)) = (row, tracked)
            && tracked.is_written(&row.status)
        {
            tracked.remember_written(&row, &row.status);
            self.handle.book.write(|pages| {
                if let Some(record) = pages.records.get_mut(key) {
                    record.row = row;
                }
            });
            return;
        }
        self.queue.push_after(key, TOGETHER, clock());
    }
}

fn differs_in_writing(before: &ServiceRow, now: &ServiceRow) -> bool {
    if before.status == now.status {
        return false;
    }
    let mut same = before.clone();
    same.resource_version.clone_from(&now.resource_version);
    same.status.clone_from(&now.status);
    // The finalizer comes with the first status. That it goes is never ours alone to know.
    same.finalized |= now.finalized;
    for mark in MARKS {
        match now.annotations.get(mark) {
            Some(value) => same.annotations.insert(mark.to_owned(), value.clone()),
            None => same.annotations.remove(mark),
        };
    }
    same == *now
}
