//! Work on many things by several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More threads than these are not started: the disk is the same.
const THREADS: usize = 8;

/// A share of Services that are read from memory.
pub const SERVICES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Returns what `work` makes of each thing, in the order of the things. A thread is started for
/// each `share` of them: about as many as are done while it starts.
///
/// # Panics
/// If `work` does.
pub fn map<T: Sync, R: Send>(
    things: &[T],
    share: NonZeroUsize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(THREADS).min(things.len() / share);
    if threads < 2 {
        return things.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(thing) = things.get(position) else {
                return done;
            };
            done.push((position, work(thing)));
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        // One that can't be started leaves its share to this one.
        let others: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut all = run();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(position, _)| *position);
    all.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_things_comes_in_their_order() {
        for count in [0, 1, 3, 8, 1000] {
            let things: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = things.iter().map(|it| it * 2).collect();
            let share = NonZeroUsize::new(4).unwrap();
            assert_eq!(map(&things, share, |it| it * 2), doubled);
        }
    }
}
