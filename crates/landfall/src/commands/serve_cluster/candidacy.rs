//! Whether this replica asks for the Lease: the thin loop around [`Candidacy`].

use std::time::Duration;

use landfall_engine::leadership::{Candidacy, Role, Times};
use tokio::sync::watch;
use tokio::time::Instant;

/// How long changes are gathered before the next decision: a data plane at work has many.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Says whether this replica may lead, until its candidacy ends: one that leads and does not come
/// to work keeps others from theirs. `changes` notifies when `works` may have changed.
pub(super) async fn follow_candidacy(
    times: Times,
    works: impl Fn() -> bool,
    mut changes: watch::Receiver<u64>,
    mut role: watch::Receiver<Role>,
    able: watch::Sender<bool>,
) {
    let mut candidacy = Candidacy::new(&times);
    loop {
        let term = match *role.borrow_and_update() {
            Role::Leading { term } => Some(term),
            Role::Standby | Role::Carrying => None,
        };
        changes.borrow_and_update();
        let now = Instant::now();
        let (is_able, due) = candidacy.validate(term, works(), now.into_std());
        able.send_if_modified(|able| std::mem::replace(able, is_able) != is_able);
        let due_at = due.map_or(now, Instant::from_std);
        tokio::select! {
            news = role.changed() => if news.is_err() {
                return;
            },
            // Also where it works: that may be of a term that the engine has yet to see ended.
            Ok(()) = changed(&mut changes), if term.is_some() => {}
            () = tokio::time::sleep_until(due_at), if due.is_some() => {}
        }
    }
}

async fn changed(changes: &mut watch::Receiver<u64>) -> Result<(), watch::error::RecvError> {
    changes.changed().await?;
    tokio::time::sleep(DEBOUNCE).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// What is said of a replica whose engine is made up.
    struct Scene {
        role: watch::Sender<Role>,
        works: Arc<AtomicBool>,
        changes: watch::Sender<u64>,
        said: watch::Receiver<bool>,
        taking: tokio::task::JoinHandle<()>,
    }

    impl Scene {
        fn start() -> Self {
            let (able, said) = watch::channel(false);
            let role = watch::Sender::new(Role::Standby);
            let changes = watch::Sender::new(0);
            let works = Arc::new(AtomicBool::new(false));
            let asked = works.clone();
            let taking = tokio::spawn(follow_candidacy(
                Times::default(),
                move || asked.load(Ordering::Relaxed),
                changes.subscribe(),
                role.subscribe(),
                able,
            ));
            Self {
                role,
                works,
                changes,
                said,
                taking,
            }
        }

        /// Returns how many seconds it takes until it is said whether this replica may lead.
        async fn until(&mut self, wanted: bool) -> u64 {
            let began = Instant::now();
            let said = self.said.wait_for(|able| *able == wanted);
            let said = tokio::time::timeout(Duration::from_secs(3600), said).await;
            said.unwrap().unwrap();
            began.elapsed().as_secs()
        }

        fn leads(&self, term: u64) {
            self.role.send_replace(Role::Leading { term });
        }

        fn works(&self, works: bool) {
            self.works.store(works, Ordering::Relaxed);
            self.changes.send_modify(|number| *number += 1);
        }

        async fn settle(&self) {
            tokio::time::sleep(DEBOUNCE * 2).await;
        }

        async fn end(self) {
            drop(self.role);
            self.taking.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_knows_too_little_to_work_gives_the_lease_up_for_a_while() {
        let mut scene = Scene::start();
        assert_eq!(scene.until(true).await, 0, "it has started");
        scene.leads(1);
        assert_eq!(scene.until(false).await, 60);
        scene.role.send_replace(Role::Carrying);
        assert_eq!(scene.until(true).await, 15);
        scene.leads(2);
        assert_eq!(scene.until(false).await, 120);
        scene.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_a_term_that_has_ended_is_not_taken_for_work_of_the_next_one() {
        let mut scene = Scene::start();
        scene.leads(1);
        scene.works(true);
        scene.settle().await;
        // As after a pause of the whole machine: the engine sees only later that a term has ended.
        scene.role.send_replace(Role::Carrying);
        scene.leads(2);
        scene.settle().await;
        assert!(*scene.said.borrow());
        scene.works(false);
        let idle = scene.until(false).await;
        assert_eq!(idle, (DEBOUNCE + Duration::from_secs(60)).as_secs());
        scene.end().await;
    }
}
