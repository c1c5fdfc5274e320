//! The pipes of a worker. Owns spare pipes and the account of all that the process has; never moves
//! a byte.
//!
//! The larger a pipe, the less a byte costs, but pipes are counted: a user without special rights
//! may have 64 MiB of them, and beyond that the kernel makes pipes of two pages without saying so.
//! So the process takes at most half of that for large pipes and a quarter for small ones, and
//! where a pipe is too small to be of use, bytes are copied.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_sys::pipe::{self, Pipe};

/// How many pipes a worker makes at most; directions beyond that are copied.
pub(super) const MAX_PIPES: usize = 256;

/// How many empty pipes a worker keeps. One is in use at a time but for those that receivers hold
/// up.
const KEPT_PIPES: usize = 4;

/// A pipe with less room than this costs more than copying does.
const LEAST: usize = 64 * 1024;

/// After a pipe was not to be had, so many requests are refused before the kernel is asked again.
const PAUSE: u32 = 1024;

/// The two sizes of pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Large,
    Small,
}

/// What all pipes of the process may take.
#[derive(Debug)]
pub(super) struct Budget {
    large: AtomicUsize,
    small: AtomicUsize,
}

/// A pipe, and its place in the budget.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) pipe: Pipe,
    size: Size,
    budget: &'static Budget,
}

/// The pipes of a worker.
#[derive(Debug)]
pub(super) struct Pipes {
    spare: Vec<Reserved>,
    made: usize,
    most: usize,
    budget: &'static Budget,
    make: fn(usize) -> io::Result<Pipe>,
    /// How many more requests are refused without asking the kernel.
    pause: u32,
}

// === impl Size ===

impl Size {
    /// The room in bytes.
    fn bytes(self) -> usize {
        match self {
            Self::Large => 1024 * 1024,
            Self::Small => 256 * 1024,
        }
    }

    /// How many of them there are at most, whatever the system allows: what stalled receivers may
    /// hold in the kernel.
    fn most(self) -> usize {
        match self {
            Self::Large => 64,
            Self::Small => 256,
        }
    }
}

// === impl Budget ===

impl Budget {
    /// What pipes may take where the system allows this user so many bytes, or any number.
    const fn fixed(large: usize, small: usize) -> Self {
        Self {
            large: AtomicUsize::new(large),
            small: AtomicUsize::new(small),
        }
    }

    /// A budget below the system's limit for the user, if there is one.
    fn within(limit: Option<usize>) -> Self {
        let share = |size: Size, part: usize| {
            let allowed = limit.map_or(usize::MAX, |limit| limit / part / size.bytes());
            allowed.min(size.most())
        };
        Self::fixed(share(Size::Large, 2), share(Size::Small, 4))
    }

    /// The budget of this process.
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Budget> = OnceLock::new();
        SHARED.get_or_init(|| Self::within(pipe::soft_limit()))
    }

    /// Takes the largest pipe that is left.
    fn claim(&self) -> Option<Size> {
        let take = |left: &AtomicUsize| {
            let less = |left: usize| left.checked_sub(1);
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        };
        [Size::Large, Size::Small]
            .into_iter()
            .find(|size| take(self.left(*size)))
    }

    fn give(&self, size: Size) {
        self.left(size).fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, size: Size) -> &AtomicUsize {
        match size {
            Size::Large => &self.large,
            Size::Small => &self.small,
        }
    }
}

// === impl Reserved ===

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.give(self.size);
    }
}

// === impl Pipes ===

impl Pipes {
    /// No pipe yet; at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Self::with(most, Budget::shared(), Pipe::new)
    }

    fn with(most: usize, budget: &'static Budget, make: fn(usize) -> io::Result<Pipe>) -> Self {
        Self {
            spare: Vec::new(),
            made: 0,
            most: most.min(MAX_PIPES),
            budget,
            make,
            pause: 0,
        }
    }

    /// An empty pipe, if one is to be had.
    pub(super) fn take(&mut self) -> Option<Reserved> {
        if let Some(pipe) = self.spare.pop() {
            return Some(pipe);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let pipe = self.make();
        match pipe {
            Some(_) => self.made += 1,
            None => self.pause = PAUSE,
        }
        pipe
    }

    /// Takes a pipe back. What is in it is lost.
    pub(super) fn give(&mut self, pipe: Reserved) {
        if pipe.pipe.filled() == 0 && self.spare.len() < KEPT_PIPES {
            self.spare.push(pipe);
        } else {
            self.made = self.made.saturating_sub(1);
            // There is room again.
            self.pause = 0;
        }
    }

    fn make(&self) -> Option<Reserved> {
        if self.made >= self.most {
            return None;
        }
        let budget = self.budget;
        let size = budget.claim()?;
        let Ok(pipe) = (self.make)(size.bytes()) else {
            budget.give(size);
            return None;
        };
        let reserved = Reserved { pipe, size, budget };
        (reserved.pipe.capacity() >= LEAST).then_some(reserved)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    fn budget(large: usize, small: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::fixed(large, small)))
    }

    fn left(budget: &Budget) -> (usize, usize) {
        (
            budget.large.load(Ordering::Relaxed),
            budget.small.load(Ordering::Relaxed),
        )
    }

    fn two_pages(_: usize) -> io::Result<Pipe> {
        ASKED.set(ASKED.get() + 1);
        Pipe::new(8192)
    }

    #[test]
    fn a_pipe_of_two_pages_is_not_used_and_not_asked_for_each_time() {
        let budget = budget(1, 1);
        let mut pipes = Pipes::with(8, budget, two_pages);
        for _ in 0..=PAUSE {
            assert!(pipes.take().is_none());
        }
        assert_eq!(ASKED.get(), 1);
        assert_eq!(left(budget), (1, 1));
        assert!(pipes.take().is_none());
        assert_eq!(ASKED.get(), 2);
    }

    #[test]
    fn large_pipes_go_first_then_small_ones_then_none() {
        let budget = budget(1, 1);
        let mut one = Pipes::with(8, budget, Pipe::new);
        let mut other = Pipes::with(8, budget, Pipe::new);
        let large = one.take().unwrap();
        assert_eq!(large.size, Size::Large);
        let small = other.take().unwrap();
        assert_eq!(small.size, Size::Small);
        assert!(one.take().is_none());
        // A spare one stays the worker's, and goes with it.
        other.give(small);
        assert_eq!(left(budget), (0, 0));
        drop(other);
        assert_eq!(left(budget), (0, 1));
        drop(large);
        assert_eq!(left(budget), (1, 1));
    }

    #[test]
    fn a_worker_makes_no_more_than_it_may() {
        let mut pipes = Pipes::with(1, budget(8, 8), Pipe::new);
        let first = pipes.take().unwrap();
        assert!(pipes.take().is_none());
        pipes.give(first);
        assert!(pipes.take().is_some());
    }

    #[test]
    fn the_budget_leaves_a_quarter_of_what_the_user_may_have() {
        assert_eq!(left(&Budget::within(Some(64 << 20))), (32, 64));
        assert_eq!(left(&Budget::within(Some(1 << 20))), (0, 1));
        assert_eq!(left(&Budget::within(None)), (64, 256));
    }
}
