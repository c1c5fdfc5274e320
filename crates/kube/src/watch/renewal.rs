//! Listing anew, because what is known may lag behind: who asks for it, and what a watch answers.
//!
//! A watch tells nothing of how far behind it is: the API server that it is connected to may lag
//! behind the store, or the connection may have stalled. Only a list that is asked for later, and
//! without a `resourceVersion`, is as new as the store. So it needs no comparison of versions.

use tokio::sync::watch;

/// How many times everything was asked to be listed, the first time not counted, as of the list
/// that was answered last; `None`: none was yet.
pub(crate) type Listings = watch::Receiver<Option<u64>>;

/// A watch's side.
#[derive(Debug)]
pub(crate) struct Renewal {
    asked: watch::Receiver<u64>,
    /// What the list answers that is under way or was the last one.
    begun: u64,
    answered: watch::Sender<Option<u64>>,
}

// === impl Renewal ===

impl Renewal {
    /// Follows how often everything is asked to be listed anew.
    pub(crate) fn when(asked: watch::Receiver<u64>) -> (Self, Listings) {
        let (answered, listings) = watch::channel(None);
        let begun = *asked.borrow();
        let renewal = Self {
            asked,
            begun,
            answered,
        };
        (renewal, listings)
    }

    /// Lists once.
    pub(crate) fn never() -> (Self, Listings) {
        Self::when(watch::Sender::new(0).subscribe())
    }

    /// Notes that what is asked for next comes after everything that was asked for so far; true: it
    /// must be a list.
    pub(super) fn begin(&mut self) -> bool {
        let asked = *self.asked.borrow_and_update();
        asked > std::mem::replace(&mut self.begun, asked)
    }

    /// Returns once everything is to be listed anew since [`Self::begin`].
    pub(super) async fn asked(&mut self) {
        let begun = self.begun;
        if self.asked.wait_for(|asked| *asked > begun).await.is_err() {
            // Never again.
            std::future::pending::<()>().await;
        }
    }

    /// Says that everything is known as of [`Self::begin`], or known not to be knowable.
    pub(super) fn answer(&self) {
        let now = Some(self.begun);
        self.answered
            .send_if_modified(|before| std::mem::replace(before, now) != now);
    }
}

/// Waits for the answer to this or a later question; false: none will come.
pub(crate) async fn answered(listings: &mut Listings, question: u64) -> bool {
    let is_later = |answer: &Option<u64>| answer.is_some_and(|answer| answer >= question);
    listings.wait_for(is_later).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_that_was_begun_before_it_was_asked_for_is_no_answer() {
        let ask = watch::Sender::new(0);
        let (mut renewal, mut listings) = Renewal::when(ask.subscribe());
        assert!(!renewal.begin());
        ask.send_replace(1);
        renewal.answer();
        assert!(answered(&mut listings, 0).await);
        assert_eq!(*listings.borrow(), Some(0));
        renewal.asked().await;
        assert!(renewal.begin() && !renewal.begin());
        renewal.answer();
        assert!(answered(&mut listings, 1).await);
        drop(renewal);
        assert!(!answered(&mut listings, 2).await);
    }
}
