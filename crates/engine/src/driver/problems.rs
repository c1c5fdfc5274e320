//! Problems of the sources in the log: one line when one appears, one when its place is healed.

use std::collections::HashSet;

use landfall_model::reason::{Reason, Severity};

/// What the log says about a change of the problems.
#[derive(Debug, Default, PartialEq, Eq)]
struct ProblemChange<'a> {
    appeared: Vec<&'a Reason>,
    healed: Vec<Place<'a>>,
}

/// What a problem is about: a file, where one is known, else its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place<'a> {
    file: Option<&'a str>,
    message: &'a str,
}

/// Logs what appeared and what is gone.
pub(super) fn log(before: &[Reason], after: &[Reason]) {
    let news = compare(before, after);
    for reason in news.appeared {
        let Reason {
            code,
            field,
            value,
            message,
            remedy,
            origin,
            ..
        } = reason;
        let (field, value) = (field.as_deref(), value.as_deref());
        let (file, line) = origin.as_ref().map(|it| (&*it.file, it.line)).unzip();
        let remedy = Some(remedy.as_str()).filter(|remedy| !remedy.is_empty());
        if reason.severity == Severity::Info {
            tracing::info!(
                %code, file, line, field, value, problem = message, remedy,
                "note about a source"
            );
        } else {
            tracing::warn!(
                %code, file, line, field, value, problem = message, remedy,
                "problem with a source"
            );
        }
    }
    for Place { file, message } in news.healed {
        let problem = Some(message).filter(|message| !message.is_empty());
        tracing::info!(file, problem, "problem with a source is over");
    }
}

fn compare<'a>(before: &'a [Reason], after: &'a [Reason]) -> ProblemChange<'a> {
    let known: HashSet<&Reason> = before.iter().collect();
    let places: HashSet<Place<'_>> = after.iter().map(Place::of).collect();
    let mut news = ProblemChange {
        appeared: Vec::new(),
        healed: Vec::new(),
    };
    let mut seen = HashSet::new();
    for reason in after {
        if !known.contains(reason) && seen.insert(reason) {
            news.appeared.push(reason);
        }
    }
    let mut seen = HashSet::new();
    for place in before.iter().map(Place::of) {
        if !places.contains(&place) && seen.insert(place) {
            news.healed.push(place);
        }
    }
    news
}

// === impl Place ===

impl<'a> Place<'a> {
    fn of(reason: &'a Reason) -> Self {
        match &reason.origin {
            Some(origin) => Self {
                file: Some(&*origin.file),
                message: "",
            },
            None => Self {
                file: None,
                message: &reason.message,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::reason::{Code, Origin};

    use super::*;

    fn at(file: &str, line: u32, message: &str) -> Reason {
        let file = file.into();
        Reason::error(Code::InvalidManifest, message).origin(Some(Origin { file, line }))
    }

    #[test]
    fn a_problem_is_reported_when_it_appears_and_not_again_while_it_lasts() {
        let after = [at("a.yaml", 3, "no"), at("a.yaml", 9, "no")];
        let news = compare(&[], &after);
        assert_eq!(news.appeared, [&after[0], &after[1]]);
        assert_eq!(news.healed, []);
        assert_eq!(compare(&after, &after), ProblemChange::default());
    }

    #[test]
    fn a_file_is_healed_once_nothing_is_wrong_with_it_any_more() {
        let before = [at("a.yaml", 3, "no"), at("a.yaml", 9, "no"), at("b", 1, "")];
        let moved = [at("a.yaml", 4, "no"), before[2].clone()];
        let news = compare(&before, &moved);
        assert_eq!((news.appeared.len(), news.healed.len()), (1, 0));
        let files = |news: ProblemChange<'_>| -> Vec<_> {
            let files = news.healed.iter().map(|place| place.file);
            files.map(|file| file.unwrap().to_owned()).collect()
        };
        assert_eq!(files(compare(&moved, &before[2..])), ["a.yaml"]);
        assert_eq!(files(compare(&before, &[])), ["a.yaml", "b"]);
    }

    #[test]
    fn problems_without_a_place_are_distinguished_by_their_text() {
        let [one, other] = ["pods can't be followed", "nodes can't be followed"]
            .map(|message| Reason::warning(Code::ChangesNoticedLate, message));
        let both = [one.clone(), other];
        let left = [one];
        let news = compare(&both, &left);
        assert!(news.appeared.is_empty());
        let healed: Vec<_> = news.healed.iter().map(|place| place.message).collect();
        assert_eq!(healed, ["nodes can't be followed"]);
    }
}
