//! Crashes before and after every operation, writes that end at every byte, disks that err and fill
//! up: everything that was acknowledged is there afterwards, and nothing by halves.

use super::sim::{Sim, SimFault};
use super::*;

/// What is there, in a form that is easy to compare.
type Content = BTreeMap<String, String>;

fn pool(name: &str, addresses: &str) -> Entry {
    Entry::Pool(Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: vec![addresses.to_owned()],
        ..PoolRow::default()
    }))
}

fn batch(changes: &[(&str, Option<&str>)]) -> Changes {
    let changes = changes.iter().map(|(name, addresses)| {
        let entry = addresses.map(|addresses| pool(name, addresses));
        (Key::Pool((*name).to_owned()), entry)
    });
    changes.collect()
}

/// What is written, one batch after another; some of it is outdated soon, so that the journal is
/// rewritten on the way.
fn script() -> Vec<Changes> {
    vec![
        batch(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]),
        batch(&[("a", Some("2"))]),
        batch(&[("b", None), ("c", Some("2"))]),
        batch(&[("a", Some("3")), ("c", Some("3"))]),
        batch(&[("b", Some("4"))]),
        batch(&[("a", None), ("b", Some("5")), ("c", Some("5"))]),
        batch(&[("a", Some("6"))]),
    ]
}

fn with(mut content: Content, changes: &Changes) -> Content {
    for (key, entry) in changes {
        let Key::Pool(name) = key else { unreachable!() };
        match entry {
            Some(Entry::Pool(row)) => content.insert(name.clone(), row.addresses[0].clone()),
            Some(Entry::Service(_)) | None => content.remove(name),
        };
    }
    content
}

fn content_of(remembered: &Remembered) -> Content {
    let pools = remembered.pools.iter();
    pools
        .map(|row| (row.name.clone(), row.addresses[0].clone()))
        .collect()
}

fn opened(sim: &Sim) -> (StateDir, Content) {
    let (mut state, remembered) = sim.open().unwrap();
    state.journal.compact_soon();
    (state, content_of(&remembered))
}

/// What a power cut now leaves must be one of these, all of it; and can be written to, which a
/// sample of it shows.
fn assert_survives(sim: &Sim, acceptable: &[&Content], what: &str) {
    for (number, survivor) in sim.after_power_cut().into_iter().enumerate() {
        let (mut state, remembered) = survivor
            .open()
            .unwrap_or_else(|error| panic!("{what}, variant {number}: {error}"));
        let found = content_of(&remembered);
        assert!(
            acceptable.contains(&&found),
            "{what}, variant {number}: found {found:?}, not one of {acceptable:?}"
        );
        if number % 8 > 0 {
            continue;
        }
        let more = batch(&[("more", Some("9"))]);
        state.commit(&more).unwrap();
        drop(state);
        assert_eq!(opened(&survivor).1, with(found, &more), "{what}, {number}");
    }
}

/// How many operations the script takes.
fn operations() -> usize {
    let sim = Sim::default();
    let (mut state, _) = opened(&sim);
    for changes in script() {
        state.commit(&changes).unwrap();
        state.journal.compact_soon();
    }
    sim.operations()
}

#[test]
fn what_a_start_finds_survives_a_power_cut_although_its_writer_died_before_it_was_synced() {
    for at in 0..operations() {
        for trouble in [SimFault::CutBefore, SimFault::CutAfter] {
            let sim = Sim::default();
            sim.plan(at, trouble);
            if let Ok((mut state, _)) = sim.open() {
                for changes in script() {
                    state.journal.compact_soon();
                    if state.commit(&changes).is_err() {
                        break;
                    }
                }
            }
            // The process died, and the power stays.
            let sim = sim.next_life();
            let (mut state, found) = opened(&sim);
            let what = format!("{trouble:?} operation {at}");
            assert_survives(&sim, &[&found], &what);
            let more = batch(&[("more", Some("9"))]);
            state.commit(&more).unwrap();
            assert_survives(&sim, &[&with(found, &more)], &what);
        }
    }
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged() {
    let count = operations();
    assert!(count > 25, "the journal was never rewritten: {count}");
    for at in 0..count {
        for trouble in [SimFault::CutBefore, SimFault::CutAfter] {
            let sim = Sim::default();
            sim.plan(at, trouble);
            let what = format!("{trouble:?} operation {at}");
            let Ok((mut state, _)) = sim.open() else {
                assert!(sim.is_off(), "{what}");
                assert_survives(&sim, &[&Content::new()], &what);
                continue;
            };
            let mut acknowledged = Content::new();
            for changes in script() {
                state.journal.compact_soon();
                let after = with(acknowledged.clone(), &changes);
                if state.commit(&changes).is_err() {
                    assert!(sim.is_off(), "{what}");
                    assert_survives(&sim, &[&acknowledged, &after], &what);
                    break;
                }
                acknowledged = after;
                assert_survives(&sim, &[&acknowledged], &what);
            }
        }
    }
}

/// A state, and the journal of another process in the place of its own.
fn replaced() -> (Sim, StateDir, Content, Content, Vec<u8>) {
    let sim = Sim::default();
    let (mut state, _) = sim.open().unwrap();
    let changes = batch(&[("theirs", Some("1"))]);
    state.commit(&changes).unwrap();
    let theirs = with(Content::new(), &changes);
    let written = sim.content("state.journal").unwrap();
    drop(state);
    let sim = Sim::default();
    let (mut state, _) = sim.open().unwrap();
    state.commit(&script()[0]).unwrap();
    let ours = with(Content::new(), &script()[0]);
    sim.put("state.journal", &written);
    state.owes_journal = true;
    (sim, state, ours, theirs, written)
}

#[test]
fn a_journal_that_is_put_aside_leaves_its_place_to_ours_and_to_nothing_else() {
    let (sim, mut state, ours, _, written) = replaced();
    let before = sim.operations();
    assert!(state.keep_hold().unwrap());
    let count = sim.operations() - before;
    assert_eq!(opened(&sim).1, ours);
    assert_eq!(sim.content("state.journal.other").unwrap(), written);
    for at in 0..count {
        for trouble in [
            SimFault::CutBefore,
            SimFault::CutAfter,
            SimFault::Fails,
            SimFault::Full,
        ] {
            let (sim, mut state, ours, theirs, written) = replaced();
            let what = format!("{trouble:?} at operation {at}");
            sim.plan(at, trouble);
            if state.keep_hold().is_ok() {
                assert_survives(&sim, &[&ours], &what);
                continue;
            }
            assert_survives(&sim, &[&ours, &theirs], &what);
            if sim.is_off() {
                continue;
            }
            sim.repair();
            assert!(state.keep_hold().unwrap(), "{what}");
            assert_survives(&sim, &[&ours], &what);
            let aside = sim.content("state.journal.other");
            assert_eq!(aside.as_ref(), Some(&written), "{what}");
        }
    }
}

#[test]
fn an_operation_that_fails_costs_only_its_own_batch_and_that_only_until_it_is_tried_again() {
    for at in 0..operations() {
        for trouble in [SimFault::Fails, SimFault::Short, SimFault::Full] {
            let sim = Sim::default();
            let (mut state, _) = opened(&sim);
            sim.plan(at, trouble);
            let mut acknowledged = Content::new();
            let mut open = Changes::new();
            for changes in script() {
                state.journal.compact_soon();
                // As the registry does: what failed goes along with whatever is next.
                open.extend(changes);
                let after = with(acknowledged.clone(), &open);
                let what = format!("{trouble:?} at operation {at}");
                if state.commit(&open).is_ok() {
                    acknowledged = after;
                    open.clear();
                    assert_survives(&sim, &[&acknowledged], &what);
                } else {
                    assert_survives(&sim, &[&acknowledged, &after], &what);
                }
            }
            sim.repair();
            open.extend(batch(&[("end", Some("7"))]));
            let after = with(acknowledged, &open);
            state.commit(&open).unwrap();
            assert_survives(&sim, &[&after], "once all is well");
        }
    }
}

#[test]
fn a_full_disk_refuses_every_write_and_takes_them_again_once_there_is_room() {
    let sim = Sim::default();
    let (mut state, _) = opened(&sim);
    state.commit(&script()[0]).unwrap();
    let before = with(Content::new(), &script()[0]);
    sim.plan(0, SimFault::Full);
    for _ in 0..3 {
        let error = state.commit(&script()[1]).unwrap_err().to_string();
        assert!(
            error.starts_with("/state/state.journal: can't be written: "),
            "{error}"
        );
        assert_survives(&sim, &[&before], "full");
    }
    sim.repair();
    state.commit(&script()[1]).unwrap();
    assert_survives(&sim, &[&with(before, &script()[1])], "room again");
}

#[test]
fn after_a_failed_sync_nothing_rests_on_what_it_was_to_keep() {
    let sim = Sim::default();
    let (mut state, _) = opened(&sim);
    state.commit(&script()[0]).unwrap();
    // The write, and then its sync.
    sim.plan(1, SimFault::Fails);
    let error = state.commit(&script()[1]).unwrap_err().to_string();
    assert!(error.contains("state.journal: can't be synced"), "{error}");
    sim.repair();
    state.commit(&script()[2]).unwrap();
    let expected = with(with(Content::new(), &script()[0]), &script()[2]);
    assert_survives(&sim, &[&expected], "after the failed sync");
}

#[test]
fn a_journal_of_outdated_lines_is_rewritten_and_stays_small() {
    let sim = Sim::default();
    let (mut state, _) = opened(&sim);
    for number in 0..500 {
        state.journal.compact_soon();
        let text = number.to_string();
        state.commit(&batch(&[("a", Some(&text))])).unwrap();
    }
    let length = sim.content("state.journal").unwrap().len();
    assert!(length < 2_000, "{length}");
    assert_eq!(
        opened(&sim).1,
        with(Content::new(), &batch(&[("a", Some("499"))]))
    );
}

#[test]
fn a_journal_that_was_damaged_before_its_end_is_refused_and_left_alone() {
    let sim = Sim::default();
    let (mut state, _) = sim.open().unwrap();
    for changes in script() {
        state.commit(&changes).unwrap();
    }
    drop(state);
    let good = sim.content("state.journal").unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let last_batch = text.rfind("{\"pool\"").unwrap();
    for place in 0..last_batch {
        let mut bad = good.clone();
        bad[place] ^= 0x01;
        let sim = Sim::holding("state.journal", &bad);
        let error = sim.open().unwrap_err();
        let is_refused = matches!(
            error,
            StateError::Corrupt { .. } | StateError::Version { .. }
        );
        assert!(is_refused, "byte {place}: {error}");
        assert_eq!(sim.content("state.journal").unwrap(), bad);
        assert_eq!(sim.names(), ["state.journal"]);
    }
}

#[test]
fn a_last_batch_that_was_edited_by_hand_is_refused_instead_of_dropped() {
    let sim = Sim::default();
    let (mut state, _) = sim.open().unwrap();
    state.commit(&script()[0]).unwrap();
    let text = String::from_utf8(sim.content("state.journal").unwrap()).unwrap();
    let edited = text.replace("\"addresses\":[\"1\"]", "\"addresses\":[\"5\"]");
    let error = Sim::holding("state.journal", edited.as_bytes())
        .open()
        .unwrap_err();
    assert!(
        error.to_string().contains("changed after it was written"),
        "{error}"
    );
}

#[test]
fn what_was_interrupted_is_cut_off_at_every_byte() {
    let sim = Sim::default();
    let (mut state, _) = sim.open().unwrap();
    state.commit(&script()[0]).unwrap();
    let whole = sim.content("state.journal").unwrap();
    state.commit(&script()[1]).unwrap();
    let longer = sim.content("state.journal").unwrap();
    let before = with(Content::new(), &script()[0]);
    for length in whole.len()..longer.len() {
        let sim = Sim::holding("state.journal", &longer[..length]);
        assert_eq!(opened(&sim).1, before, "{length}");
        assert_eq!(sim.content("state.journal").unwrap(), whole, "{length}");
    }
}

#[test]
fn a_journal_of_which_not_even_the_beginning_is_whole_is_refused() {
    let sim = Sim::default();
    drop(sim.open().unwrap());
    let whole = sim.content("state.journal").unwrap();
    for length in 0..whole.len() {
        let sim = Sim::holding("state.journal", &whole[..length]);
        let error = sim.open().unwrap_err();
        assert!(
            matches!(error, StateError::Corrupt { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_journal_of_a_newer_format_is_refused_and_left_alone() {
    let text = "{\"landfall\":\"state\",\"format\":3,\"more\":[]}\nsomething else\n";
    let sim = Sim::holding("state.journal", text.as_bytes());
    let error = sim.open().unwrap_err();
    assert!(
        matches!(
            error,
            StateError::Version {
                found: 3,
                known: 2,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(sim.content("state.journal").unwrap(), text.as_bytes());
}

const FORMER_TEXT: &str = "{\"version\":1,\"services\":[\n\
                          {\"service\":{\"metadata\":{\"name\":\"web\",\"namespace\":\"shop\",\
                          \"uid\":\"u1\",\"finalizers\":\
                          [\"service.kubernetes.io/load-balancer-cleanup\"]},\
                          \"spec\":{\"type\":\"LoadBalancer\",\"ports\":[{\"port\":80}]},\
                          \"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"127.0.0.2\"}]}}}},\n\
                          {\"deleting\":true,\"service\":{\"metadata\":\
                          {\"name\":\"old\",\"uid\":\"u2\"},\"spec\":{\"ports\":[{\"port\":81}]}}}\n\
                          ]}\n";

fn assert_taken_over(remembered: &Remembered, what: &str) {
    let found: Vec<_> = remembered
        .services
        .iter()
        .map(|row| {
            let addresses: Vec<_> = row.status.addresses().map(|it| it.to_string()).collect();
            (row.key.to_string(), row.deleting, row.finalized, addresses)
        })
        .collect();
    let web = (
        "shop/web".to_owned(),
        false,
        true,
        vec!["127.0.0.2".to_owned()],
    );
    let old = ("default/old".to_owned(), true, false, Vec::new());
    assert!(
        found.contains(&web) && found.contains(&old) && found.len() == 2,
        "{what}: {found:?}"
    );
}

#[test]
fn the_state_of_an_earlier_version_is_taken_over_whenever_the_power_is_cut() {
    let sim = Sim::holding("state.json", FORMER_TEXT.as_bytes());
    assert_taken_over(&sim.open().unwrap().1, "undisturbed");
    assert_eq!(sim.names(), ["state.journal", "state.json.migrated"]);
    assert_eq!(
        sim.content("state.json.migrated").unwrap(),
        FORMER_TEXT.as_bytes()
    );
    let count = sim.operations();
    for at in 0..count {
        for trouble in [SimFault::CutBefore, SimFault::CutAfter] {
            let sim = Sim::holding("state.json", FORMER_TEXT.as_bytes());
            sim.plan(at, trouble);
            assert!(sim.open().is_err());
            for survivor in sim.after_power_cut() {
                let what = format!("{trouble:?} operation {at}");
                assert_taken_over(&survivor.open().unwrap().1, &what);
                assert_eq!(survivor.names(), ["state.journal", "state.json.migrated"]);
            }
        }
    }
}

#[test]
fn the_state_of_an_earlier_version_stays_as_long_as_it_can_not_be_taken_over() {
    let sim = Sim::holding("state.json", FORMER_TEXT.as_bytes());
    sim.plan(0, SimFault::Full);
    let error = sim.open().unwrap_err().to_string();
    assert!(error.contains("state.journal.new: can't be"), "{error}");
    assert_eq!(sim.content("state.json").unwrap(), FORMER_TEXT.as_bytes());
    sim.repair();
    assert_taken_over(&sim.open().unwrap().1, "with room again");
}

#[test]
fn a_state_beside_a_journal_that_did_not_take_it_over_is_refused() {
    let sim = Sim::default();
    drop(sim.open().unwrap());
    let journal = sim.content("state.journal").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("state.journal"), &journal).unwrap();
    fs::write(folder.path().join("state.json"), FORMER_TEXT).unwrap();
    let error = StateDir::open(folder.path()).unwrap_err();
    assert!(matches!(error, StateError::TwoStates { .. }), "{error}");
    let left = fs::read_to_string(folder.path().join("state.json")).unwrap();
    assert_eq!(left, FORMER_TEXT);
}
