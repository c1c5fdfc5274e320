//! Whether this replica asks for the Lease: the thin loop around [`Turns`].

use std::sync::Arc;

use landfall_engine::book::Book;
use landfall_engine::leadership::{Role, Turns};
use tokio::sync::watch;
use tokio::time::Instant;

/// Says whether this replica may lead, until its candidacy ends: one that leads and does not come
/// to work keeps others from theirs.
pub(super) async fn take_turns(
    book: Arc<Book>,
    mut role: watch::Receiver<Role>,
    able: watch::Sender<bool>,
) {
    let mut turns = Turns::default();
    let mut changes = book.changes();
    loop {
        let leads = matches!(*role.borrow_and_update(), Role::Leading { .. });
        changes.borrow_and_update();
        let works = book.read(|pages| pages.at_work);
        let now = Instant::now();
        let (is_able, due) = turns.judge(leads, works, now.into_std());
        able.send_if_modified(|able| std::mem::replace(able, is_able) != is_able);
        let due_at = due.map_or(now, Instant::from_std);
        tokio::select! {
            news = role.changed() => if news.is_err() {
                return;
            },
            Ok(()) = changes.changed(), if leads && !works => {}
            () = tokio::time::sleep_until(due_at), if due.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns how many seconds it takes until it is said whether this replica may lead.
    async fn until(able: &mut watch::Receiver<bool>, wanted: bool) -> u64 {
        let began = Instant::now();
        let said = able.wait_for(|able| *able == wanted);
        let said = tokio::time::timeout(Duration::from_secs(3600), said).await;
        said.unwrap().unwrap();
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_knows_too_little_to_work_gives_the_lease_up_for_a_while() {
        let (able, mut said) = watch::channel(false);
        let (role, followed) = watch::channel(Role::Standby);
        // Of an engine that never begins to work.
        let taking = tokio::spawn(take_turns(Arc::default(), followed, able));
        assert_eq!(until(&mut said, true).await, 0, "it has started");
        role.send_replace(Role::Leading { term: 1 });
        assert_eq!(until(&mut said, false).await, 60);
        role.send_replace(Role::Carrying);
        assert_eq!(until(&mut said, true).await, 15);
        role.send_replace(Role::Leading { term: 2 });
        assert_eq!(until(&mut said, false).await, 120);
        drop(role);
        taking.await.unwrap();
    }
}
