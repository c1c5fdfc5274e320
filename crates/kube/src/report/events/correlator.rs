//! What is sent of what happened: repetitions are counted, and each Service has a budget. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use landfall_model::Uid;

use super::occurrence::EventKey;
use crate::report::events::Occurrence;

/// What to send: pure.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    pub(super) series: HashMap<EventKey, Series>,
    /// Hashes of the messages of one reason.
    pub(super) similar: HashMap<(Uid, &'static str), Similar>,
    pub(super) budgets: HashMap<Uid, Budget>,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) count: u32,
    last: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct Similar {
    messages: HashSet<u64>,
    last: Instant,
}

/// How much a Service may still say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: f64,
    pub(super) at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// A new event of this name, with this message, for so many occurrences.
    Create(String, String, u32),
    /// It was said before, so many times by now.
    Count(String, u32),
    /// Nothing: it has said too much.
    Nothing,
}

const WINDOW: Duration = Duration::from_secs(600);

/// As Kubernetes' own clients have it: so many at once, and one more per five minutes.
const BURST: f64 = 25.0;

const REFILL: Duration = Duration::from_secs(300);

/// Messages of one reason at one Service that are events of their own, as Kubernetes' own clients
/// have it.
pub(super) const DISTINCT: usize = 10;

/// Events and budgets that are remembered. Those that did not occur for the longest time go first.
pub(super) const MOST: usize = 2048;

impl Correlator {
    /// What to send for something that happened so many times. `fresh` is a name that no event has.
    pub(super) fn take(
        &mut self,
        occurrence: &Occurrence,
        times: u32,
        fresh: String,
        now: Instant,
    ) -> Sending {
        self.prune(now);
        if !self.spend(&occurrence.saying.uid, now) {
            return Sending::Nothing;
        }
        let combined = self.is_one_of_many(&occurrence.saying, now);
        let saying = occurrence.saying.clone();
        let saying = if combined { saying.combined() } else { saying };
        match self.series.get_mut(&saying) {
            Some(series) if now.duration_since(series.last) < WINDOW => {
                series.count = series.count.saturating_add(times);
                series.last = now;
                Sending::Count(series.name.clone(), series.count)
            }
            _ => {
                let series = Series {
                    name: fresh.clone(),
                    count: times,
                    last: now,
                };
                self.series.insert(saying, series);
                let message = &occurrence.saying.message;
                let note = if combined {
                    format!("(combined from similar events): {message}")
                } else {
                    message.clone()
                };
                Sending::Create(fresh, note, times)
            }
        }
    }

    /// Returns whether a message is one too many of its reason.
    fn is_one_of_many(&mut self, saying: &EventKey, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        saying.message.hash(&mut hasher);
        let kind = (saying.uid.clone(), saying.reason);
        let similar = self.similar.entry(kind).or_insert_with(|| Similar {
            messages: HashSet::new(),
            last: now,
        });
        if now.duration_since(similar.last) >= WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        let message = hasher.finish();
        if similar.messages.len() < DISTINCT {
            similar.messages.insert(message);
        }
        !similar.messages.contains(&message)
    }

    /// The event that was counted on is gone: the next one is a first again.
    pub(super) fn forget(&mut self, occurrence: &Occurrence) {
        self.series.remove(&occurrence.saying);
        self.series.remove(&occurrence.saying.clone().combined());
    }

    fn spend(&mut self, uid: &Uid, now: Instant) -> bool {
        let budget = self.budgets.entry(uid.clone()).or_insert(Budget {
            left: BURST,
            at: now,
        });
        let refilled = now.duration_since(budget.at).as_secs_f64() / REFILL.as_secs_f64();
        budget.left = (budget.left + refilled).min(BURST);
        budget.at = now;
        let may = budget.left >= 1.0;
        if may {
            budget.left -= 1.0;
        }
        may
    }

    fn prune(&mut self, now: Instant) {
        if self.series.len() >= MOST {
            self.series
                .retain(|_, series| now.duration_since(series.last) < WINDOW);
            prune_oldest(&mut self.series, |series| series.last);
        }
        if self.similar.len() >= MOST {
            prune_oldest(&mut self.similar, |similar| similar.last);
        }
        if self.budgets.len() >= MOST {
            prune_oldest(&mut self.budgets, |budget| budget.at);
        }
    }
}

/// Leaves room: drops the older half of a map that is full.
fn prune_oldest<K, V>(map: &mut HashMap<K, V>, age: impl Fn(&V) -> Instant) {
    if map.len() < MOST {
        return;
    }
    let mut ages: Vec<Instant> = map.values().map(&age).collect();
    ages.sort_unstable();
    if let Some(middle) = ages.get(ages.len() / 2).copied() {
        map.retain(|_, value| age(value) > middle);
    }
}
