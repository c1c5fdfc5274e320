//! The Services that a process works on, where it shall leave the others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use clap::Args;
use landfall_model::ServiceKey;
use landfall_model::rows::{Fact, ServiceRow};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Which Services are meant: those of either option; without any, all.
#[derive(Clone, Debug, Default, Args)]
pub struct ChosenArgs {
    /// Only this Service, as if there were no other; may be repeated
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub only: Vec<ServiceKey>,
    /// Only Services with these labels, as with kubectl: KEY=VALUE, KEY!=VALUE, KEY or !KEY, with
    /// commas between them
    #[arg(long, value_name = "LABELS")]
    pub selector: Option<LabelSelector>,
}

/// A selector on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// What a label has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Is(String, String),
    IsNot(String, String),
    Exists(String),
    IsAbsent(String),
}

/// As many facts wait for each other as in the channel behind.
const FACTS: usize = 1024;

// === impl ChosenArgs ===

impl ChosenArgs {
    /// Whether a Service is meant.
    pub fn choose(&self, row: &ServiceRow) -> bool {
        let selected = self
            .selector
            .as_ref()
            .is_some_and(|it| it.matches(&row.labels));
        self.is_all() || selected || self.only.contains(&row.key)
    }

    fn is_all(&self) -> bool {
        self.only.is_empty() && self.selector.is_none()
    }

    /// Returns a sender whose facts go on to `facts`, but for those of Services that are not meant.
    /// One that was meant once goes on to be: a label that is taken from it does not give it up.
    pub fn before(&self, facts: mpsc::Sender<Fact>, tasks: &TaskTracker) -> mpsc::Sender<Fact> {
        if self.is_all() {
            return facts;
        }
        let (sender, mut receiver) = mpsc::channel(FACTS);
        let (chosen, mut known) = (self.clone(), BTreeSet::new());
        tasks.spawn(async move {
            while let Some(fact) = receiver.recv().await {
                if chosen.admits(&fact, &mut known) && facts.send(fact).await.is_err() {
                    return;
                }
            }
        });
        sender
    }

    /// Whether a fact concerns what is meant. `known` are the Services that were meant so far.
    fn admits(&self, fact: &Fact, known: &mut BTreeSet<ServiceKey>) -> bool {
        match fact {
            Fact::Service(row) => {
                let chosen = known.contains(&row.key) || self.choose(row);
                if chosen {
                    known.insert(row.key.clone());
                }
                chosen
            }
            Fact::ServiceGone(key) => known.remove(key),
            _ => true,
        }
    }
}

// === impl LabelSelector ===

impl LabelSelector {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Is(key, value) => labels.get(key) == Some(value),
            Requirement::IsNot(key, value) => labels.get(key) != Some(value),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::IsAbsent(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for LabelSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = |text: &str| {
            let text = text.trim();
            let plain = |it: char| it.is_ascii_alphanumeric() || "-_./".contains(it);
            if text.chars().all(plain) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no part of a label"))
            }
        };
        let key = |text: &str| match word(text)? {
            key if key.is_empty() => Err("a label without a name".to_owned()),
            key => Ok(key),
        };
        let requirement = |text: &str| {
            let text = text.trim();
            Ok(if let Some((name, value)) = text.split_once("!=") {
                Requirement::IsNot(key(name)?, word(value)?)
            } else if let Some((name, value)) = text.split_once('=') {
                let value = value.strip_prefix('=').unwrap_or(value);
                Requirement::Is(key(name)?, word(value)?)
            } else if let Some(name) = text.strip_prefix('!') {
                Requirement::IsAbsent(key(name)?)
            } else {
                Requirement::Exists(key(text)?)
            })
        };
        let requirements: Result<Vec<Requirement>, String> =
            text.split(',').map(requirement).collect();
        requirements.map(Self)
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

    use super::*;

    fn labels(text: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = text.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_selector_is_read_as_by_kubectl() {
        let canary = labels(&[("canary", "yes"), ("team", "a")]);
        for (text, matches) in [
            ("canary=yes", true),
            ("canary==yes", true),
            ("canary=no", false),
            ("canary", true),
            ("!canary", false),
            ("!other", true),
            ("team!=b,canary", true),
            ("team!=a", false),
            ("other!=a", true),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&canary), matches, "{text}");
        }
        for text in ["", "a=b c", "=a", "a in (b)"] {
            assert!(text.parse::<LabelSelector>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_chosen_once_stays_and_others_are_never_seen() {
        let chosen = ChosenArgs {
            only: vec!["default/web".parse().unwrap()],
            selector: Some("canary".parse().unwrap()),
        };
        let mut known = BTreeSet::new();
        let fact = |name: &str, canary: bool| {
            let service = svc(name).port(80).with(|row| {
                if canary {
                    row.labels.insert("canary".to_owned(), "yes".to_owned());
                }
            });
            Fact::Service(service.row())
        };
        let gone = |name: &str| Fact::ServiceGone(ServiceKey::new("default", name));
        for (fact, admitted) in [
            (fact("web", false), true),
            (fact("other", false), false),
            (gone("other"), false),
            (fact("bird", true), true),
            (fact("bird", false), true),
            (gone("bird"), true),
            (fact("bird", false), false),
            (Fact::Synced, true),
        ] {
            assert_eq!(chosen.admits(&fact, &mut known), admitted, "{fact:?}");
        }
    }
}
