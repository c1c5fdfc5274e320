//! How much of a peer is read before others of the worker have their turn. Frames that ask for
//! nothing cost a peer little and end no connection; without it, one that floods is read for as
//! long as it sends.

use std::task::{Context, Poll};

/// Bytes that are read in a row.
const SHARE: usize = 16 * 1024;

/// What was read since others had their turn.
#[derive(Debug, Default)]
pub(super) struct ReadShare(usize);

// === impl ReadShare ===

impl ReadShare {
    /// Whether more may be read now. If not, the task goes on after all others that are ready.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.0 < SHARE {
            return Poll::Ready(());
        }
        self.0 = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Notes that so much was read.
    pub(super) fn took(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

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
        let (mut share, mut turns, mut read) = (ReadShare::default(), 0, 0);
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
