//! Listing again, because what is known may lag behind: the request for it, and what a watch
//! answers.
//!
//! A watch does not show how far behind it is: the API server that it is connected to may lag
//! behind the store, or the connection may have stalled. Only a list that is asked for later, and
//! without a `resourceVersion`, is as new as the store. So it needs no comparison of versions.

use std::time::Instant;

use tokio::sync::watch;

/// What a watch says of its lists.
pub(crate) type Listings = watch::Receiver<Answers>;

/// How a watch answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    /// How many times everything was asked to be listed, the first time not counted, as of the list
    /// that was answered last; `None`: none was yet.
    question: Option<u64>,
    /// Since when nothing has failed; `None`: something has, or nothing was answered yet.
    well_since: Option<Instant>,
}

/// A watch's side.
#[derive(Debug)]
pub(crate) struct Renewal {
    asked: watch::Receiver<u64>,
    /// What the list answers that is under way or was the last one.
    begun: u64,
    answered: watch::Sender<Answers>,
}

// === impl Renewal ===

impl Renewal {
    /// Follows how often everything is asked to be listed again.
    pub(crate) fn when(asked: watch::Receiver<u64>) -> (Self, Listings) {
        let (answered, listings) = watch::channel(Answers::default());
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

    /// Returns once everything is to be listed again since [`Self::begin`].
    pub(super) async fn asked(&mut self) {
        let begun = self.begun;
        if self.asked.wait_for(|asked| *asked > begun).await.is_err() {
            // Never again.
            std::future::pending::<()>().await;
        }
    }

    /// Says that everything is known as of [`Self::begin`], or known not to be knowable. True: that
    /// was not said before.
    pub(super) fn answer(&self, now: Instant) -> bool {
        let question = Some(self.begun);
        self.answered.send_if_modified(|answers| {
            answers.well_since.get_or_insert(now);
            std::mem::replace(&mut answers.question, question) != question
        })
    }

    /// Says whether the last request was answered.
    pub(super) fn fares(&self, well: bool, now: Instant) {
        self.answered.send_if_modified(|answers| {
            let since = answers.well_since.unwrap_or(now);
            answers.well_since = well.then_some(since);
            false
        });
    }

    /// Whether everything was ever known.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.borrow().question.is_some()
    }

    /// Since when another watch fares well that has answered what this one is asked; `None`: it
    /// does not, or has not.
    pub(super) fn alike(&self, other: &Answers) -> Option<Instant> {
        other.well_since.filter(|_| other.has_answered(self.begun))
    }
}

// === impl Answers ===

impl Answers {
    /// Whether this or a later question was answered.
    fn has_answered(&self, question: u64) -> bool {
        self.question.is_some_and(|answer| answer >= question)
    }
}

/// Waits for the answer to this or a later question; false: none will come.
pub(crate) async fn answered(listings: &mut Listings, question: u64) -> bool {
    let is_later = |answers: &Answers| answers.has_answered(question);
    listings.wait_for(is_later).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_list_that_was_begun_before_it_was_asked_for_is_no_answer() {
        let ask = watch::Sender::new(0);
        let (mut renewal, mut listings) = Renewal::when(ask.subscribe());
        assert!(!renewal.begin());
        ask.send_replace(1);
        let now = Instant::now();
        assert!(renewal.answer(now) && !renewal.answer(now));
        assert!(answered(&mut listings, 0).await);
        assert_eq!(listings.borrow().question, Some(0));
        renewal.asked().await;
        assert!(renewal.begin() && !renewal.begin());
        renewal.answer(now);
        assert!(answered(&mut listings, 1).await);
        drop(renewal);
        assert!(!answered(&mut listings, 2).await);
    }

    #[test]
    fn a_watch_fares_well_from_its_first_answer_to_its_next_failure() {
        let ask = watch::Sender::new(0);
        let (services, listings) = Renewal::when(ask.subscribe());
        let (mut nodes, _) = Renewal::when(ask.subscribe());
        let alike = |nodes: &Renewal| nodes.alike(&listings.borrow());
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        services.fares(true, at(0));
        assert_eq!(alike(&nodes), None, "nothing is listed yet");
        services.answer(at(1));
        services.fares(true, at(2));
        assert_eq!(alike(&nodes), Some(at(0)));
        ask.send_replace(1);
        nodes.begin();
        assert_eq!(alike(&nodes), None, "the question is another one");
        let (mut services, listings) = Renewal::when(ask.subscribe());
        services.begin();
        services.answer(at(3));
        assert_eq!(nodes.alike(&listings.borrow()), Some(at(3)));
        services.fares(false, at(4));
        assert_eq!(nodes.alike(&listings.borrow()), None);
        services.fares(true, at(5));
        assert_eq!(nodes.alike(&listings.borrow()), Some(at(5)));
    }
}
