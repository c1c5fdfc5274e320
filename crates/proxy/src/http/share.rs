//! How much of a peer is read before others of the worker have their turn. Frames that ask for
//! nothing cost a peer little and end no connection; without it, one that floods is read for as
//! long as it sends.

use std::task::{Context, Poll};

/// Bytes that are read of a client in a row.
pub(super) const OF_CLIENT: usize = 16 * 1024;

/// What was read since others had their turn, and how much may be.
#[derive(Debug)]
pub(super) struct ReadShare {
    read: usize,
    most: usize,
}

// === impl ReadShare ===

impl ReadShare {
    /// A share of so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { read: 0, most }
    }

    /// Whether more may be read now. If not, the task goes on after all others that are ready.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.read < self.most {
            return Poll::Ready(());
        }
        self.read = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Notes that so much was read.
    pub(super) fn took(&mut self, count: usize) {
        self.read = self.read.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    const SHARE: usize = OF_CLIENT;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_connection_that_had_its_share_is_read_again_after_others() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let context = Context::from_waker(&waker);
        let (mut share, mut turns, mut read) = (ReadShare::new(SHARE), 0, 0);
        while read < 10 * SHARE {
            match share.poll(&context) {
                Poll::Ready(()) => {
                    share.took(SHARE / 4);
                    read += SHARE / 4;
                }
                Poll::Pending => turns += 1,
            }
        }
        assert_eq!((turns, woken.0.load(Ordering::Relaxed)), (9, 9));
    }
}
