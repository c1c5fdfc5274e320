//! What vouches for the annotations in Landfall's own domain. Pure.
//!
//! Annotations can be written by every user that may write the Service, its status by controllers
//! alone. So the condition `landfall.dev/Recorded` keeps a digest of each of these annotations, and
//! one that does not fit is treated as if it were not there. The digest covers the Service's UID:
//! what was written for one Service says nothing on another. [`INSTANCE`] is believed as it is,
//! because users may write it; the condition keeps its value, for a manifest that
//! replaces the object takes the annotation away without meaning to.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::status::{INSTANCE, STATE_ANNOTATIONS, STATE_DOMAIN};

/// The type of the condition.
pub const RECORDED: &str = "landfall.dev/Recorded";

/// The reason of the condition.
pub const RECORDED_REASON: &str = "Recorded";

/// Sets these digests apart from all others.
const PURPOSE: &str = "landfall.dev/Recorded v1";

/// What the value of [`INSTANCE`] follows in the message.
const INSTANCE_WORD: &str = "instance=";

/// Returns the message of the condition for these annotations; `None`: there is nothing to vouch
/// for.
pub fn vouch(uid: &str, marks: &BTreeMap<String, String>) -> Option<String> {
    let instance = marks.get(INSTANCE);
    let instance = instance.map(|name| format!("{INSTANCE_WORD}{name}"));
    let digests = vouched_keys().filter_map(|key| Some(word(uid, key, marks.get(key)?)));
    let words = instance.into_iter().chain(digests).collect::<Vec<_>>();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Returns the instance that the condition names; `recorded` is its message.
pub fn recorded_instance(recorded: &str) -> Option<&str> {
    let mut words = recorded.split(", ");
    let name = words.find_map(|word| word.strip_prefix(INSTANCE_WORD))?;
    (!name.is_empty()).then_some(name)
}

/// Takes away the annotations in Landfall's own domain that the condition does not vouch for;
/// `recorded` is its message.
pub fn keep_vouched(uid: &str, annotations: &mut BTreeMap<String, String>, recorded: Option<&str>) {
    let recorded = recorded.unwrap_or_default();
    annotations.retain(|key, value| {
        if key == INSTANCE || !key.starts_with(STATE_DOMAIN) {
            return true;
        }
        let wanted = word(uid, key, value);
        recorded.split(", ").any(|word| word == wanted)
    });
}

fn vouched_keys() -> impl Iterator<Item = &'static str> {
    STATE_ANNOTATIONS.into_iter().filter(|key| *key != INSTANCE)
}

/// What is noted of one annotation.
fn word(uid: &str, key: &str, value: &str) -> String {
    let mut digest = Sha256::new();
    for part in [PURPOSE, uid, key, value] {
        // With its length, so that no two lists of parts are the same bytes.
        digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part);
    }
    let name = key.strip_prefix(STATE_DOMAIN).unwrap_or(key);
    let mut word = format!("{name}=sha256:");
    let digits = digest.finalize().into_iter();
    let digits = digits.flat_map(|byte| [byte >> 4, byte & 0xf]);
    word.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::openstack::LOAD_BALANCER_ID;
    use crate::status::{ACCEPTED_VERSION, HELD_ADDRESSES, RECORD};

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    /// What is believed of annotations where others were recorded for the Service `u`.
    fn believed(
        uid: &str,
        recorded: &[(&str, &str)],
        there: &[(&str, &str)],
    ) -> BTreeMap<String, String> {
        let mut there = annotations(there);
        let recorded = vouch("u", &annotations(recorded));
        keep_vouched(uid, &mut there, recorded.as_deref());
        there
    }

    const BOTH: [(&str, &str); 2] = [(HELD_ADDRESSES, "192.0.2.1"), (ACCEPTED_VERSION, "{}")];

    #[test]
    fn what_was_recorded_is_believed_and_on_another_service_it_is_not() {
        assert_eq!(believed("u", &BOTH, &BOTH), annotations(&BOTH));
        assert_eq!(believed("v", &BOTH, &BOTH), annotations(&[]));
    }

    #[test]
    fn a_value_that_was_changed_and_a_key_that_was_added_are_not_believed_and_others_are() {
        let changed = [(HELD_ADDRESSES, "192.0.2.2"), (ACCEPTED_VERSION, "{}")];
        let one = annotations(&[(ACCEPTED_VERSION, "{}")]);
        assert_eq!(believed("u", &BOTH, &changed), one);
        assert_eq!(believed("u", &BOTH[1..], &BOTH), one);
        assert_eq!(believed("u", &BOTH, &BOTH[1..]), one);
        let unknown = [("state.landfall.dev/other", "x")];
        assert_eq!(believed("u", &BOTH, &unknown), annotations(&[]));
        let swapped = [(ACCEPTED_VERSION, "192.0.2.1"), (HELD_ADDRESSES, "{}")];
        assert_eq!(believed("u", &BOTH, &swapped), annotations(&[]));
    }

    #[test]
    fn nothing_is_believed_without_the_condition() {
        assert_eq!(believed("u", &[], &BOTH), annotations(&[]));
        let mut there = annotations(&BOTH);
        keep_vouched("u", &mut there, Some("addresses=sha256:, accepted"));
        assert_eq!(there, annotations(&[]));
    }

    #[test]
    fn what_users_may_write_needs_nothing_that_vouches_for_it() {
        let users = [
            (INSTANCE, "edge"),
            (LOAD_BALANCER_ID, "lb-1"),
            ("landfall.dev/drain", "1s"),
        ];
        assert_eq!(believed("u", &[], &users), annotations(&users));
        assert_eq!(vouch("u", &annotations(&users[1..])), None);
        let record = [(RECORD, "v1 x")];
        assert!(vouch("u", &annotations(&record)).is_some());
    }

    #[test]
    fn the_instance_is_named_whatever_else_is_vouched_for() {
        let all = [(INSTANCE, "edge"), BOTH[0], BOTH[1]];
        for marks in [&all[..1], &all] {
            let message = vouch("u", &annotations(marks)).unwrap();
            assert_eq!(recorded_instance(&message), Some("edge"), "{message}");
        }
        assert_eq!(believed("u", &all, &all), annotations(&all));
        let others = vouch("u", &annotations(&BOTH)).unwrap();
        for message in [others.as_str(), "", "instance=", "an instance=edge"] {
            assert_eq!(recorded_instance(message), None, "{message}");
        }
    }
}
