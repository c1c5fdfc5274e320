//! All files together: which objects there are, and what is wrong with the whole.
//!
//! The catalog remembers, file by file, the last good version of every object. What a file no
//! longer says in readable form is not withdrawn; only what a readable file leaves out is. Where
//! two documents describe one object, the first one wins: in the order of the paths given, of file
//! names, and of lines.
//!
//! Pure: it gets the content of files and never opens one.

mod part;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::reason::{Code, Origin, Reason, Severity};

use crate::manifest::{Content, Found, Object, ObjectKey};
use part::{NAMED, Part};

/// What the last check of the file system found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Every file, in the order in which their objects count.
    pub(crate) files: Vec<File>,
    /// Troubles that belong to no file, by the path that they are about.
    pub(crate) troubles: BTreeMap<Arc<str>, Reason>,
    /// Folders that could not be listed: the files in them are as they were.
    pub(crate) unlisted: Vec<Arc<str>>,
}

/// One file of a survey.
#[derive(Debug)]
pub(crate) struct File {
    /// How it is called in messages.
    pub(crate) name: Arc<str>,
    /// What was found.
    pub(crate) finding: Finding,
}

/// What was found in a file.
#[derive(Debug)]
pub(crate) enum Finding {
    /// The same as last time.
    Same,
    /// It was read.
    Read(Content),
    /// It was empty: an editor may be about to write it.
    Empty,
    /// It could not be read.
    Unreadable(Reason),
}

/// Every object of every file.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    parts: Vec<Part>,
    troubles: BTreeMap<Arc<str>, Reason>,
    /// Whether there is a folder that could not be listed.
    unlisted: bool,
    /// The files of each object, by name, once for each time that it stands there.
    places: HashMap<ObjectKey, Vec<Arc<str>>>,
    /// Objects that stand in more than one place.
    contested: BTreeSet<ObjectKey>,
    /// Objects that may be others than when [`Self::settle`] was called last.
    touched: BTreeSet<ObjectKey>,
}

/// Objects by key; `None`: it is in no file (any more).
pub(crate) type Changes = BTreeMap<ObjectKey, Option<Object>>;

/// Files laid over each other.
#[derive(Debug, Default)]
struct Overlay {
    objects: BTreeMap<ObjectKey, Object>,
    /// Documents that don't count, by file.
    duplicates: BTreeMap<Arc<str>, Vec<Reason>>,
}

/// The objects after the files were laid over each other.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Objects.
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    /// What is wrong, by file. Files without a finding are left out.
    pub(crate) problems: BTreeMap<Arc<str>, Vec<Reason>>,
}

/// Objects that may stand where they can't be read.
#[derive(Debug)]
pub(crate) struct UnreadableParts<'a> {
    /// Any object may.
    all: bool,
    spoilt: BTreeSet<&'a ObjectKey>,
}

// === impl Catalog ===

impl Catalog {
    /// Takes in a survey. Returns whether it differs from the last one.
    pub(crate) fn update(&mut self, survey: Survey) -> bool {
        if self.repeats(&survey) {
            return false;
        }
        let order: Vec<Arc<str>> = self.names().cloned().collect();
        let mut before: BTreeMap<Arc<str>, Part> = std::mem::take(&mut self.parts)
            .into_iter()
            .map(|part| (part.name.clone(), part))
            .collect();
        for file in survey.files {
            let old = before.remove(&file.name);
            let is_same = matches!(file.finding, Finding::Same);
            if let Some(old) = old.as_ref().filter(|_| !is_same) {
                self.unplace(old);
            }
            let part = Part::after(file, old);
            if !is_same {
                self.place(&part);
            }
            self.parts.push(part);
        }
        // A folder that can't be listed says nothing about the files in it.
        for part in before.into_values() {
            let inside = |folder: &Arc<str>| is_inside(&part.name, folder);
            if survey.unlisted.iter().any(inside) {
                self.parts.push(part);
            } else {
                self.unplace(&part);
            }
        }
        self.note_order(&order);
        self.troubles = survey.troubles;
        self.unlisted = !survey.unlisted.is_empty();
        true
    }

    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.parts.iter().map(|part| &part.name)
    }

    /// Notes the objects of a file that is new or has changed.
    fn place(&mut self, part: &Part) {
        for found in part.objects() {
            let places = self.places.entry(found.key.clone()).or_default();
            places.push(part.name.clone());
            if places.len() > 1 {
                self.contested.insert(found.key.clone());
            }
            self.touched.insert(found.key.clone());
        }
    }

    /// Notes that a file does not hold its objects any more.
    fn unplace(&mut self, part: &Part) {
        for found in part.objects() {
            self.touched.insert(found.key.clone());
            let Some(places) = self.places.get_mut(&found.key) else {
                continue;
            };
            if let Some(index) = places.iter().position(|name| *name == part.name) {
                places.swap_remove(index);
            }
            match places.len() {
                0 => drop(self.places.remove(&found.key)),
                1 => drop(self.contested.remove(&found.key)),
                _ => {}
            }
        }
    }

    /// Notes which objects may have another first place because files that stayed are in another
    /// order now.
    fn note_order(&mut self, before: &[Arc<str>]) {
        let now: HashSet<&Arc<str>> = self.names().collect();
        let known: HashSet<&Arc<str>> = before.iter().collect();
        let stayed = before.iter().filter(|name| now.contains(*name));
        if !stayed.eq(self.names().filter(|name| known.contains(*name))) {
            self.touched.extend(self.contested.iter().cloned());
        }
    }

    /// Whether a survey found all files as they were, and no others.
    fn repeats(&self, survey: &Survey) -> bool {
        let mut pairs = survey.files.iter().zip(&self.parts);
        survey.files.len() == self.parts.len()
            && pairs
                .all(|(file, part)| matches!(file.finding, Finding::Same) && file.name == part.name)
            && survey.unlisted.is_empty()
            && !self.unlisted
            && survey.troubles == self.troubles
    }

    /// What may stand in a file that could not be read, or not quite.
    pub(crate) fn unreadable_parts(&self) -> UnreadableParts<'_> {
        UnreadableParts {
            all: self.unlisted || self.parts.iter().any(|part| part.unclear),
            spoilt: self
                .parts
                .iter()
                .flat_map(|part| part.spoilt.keys())
                .collect(),
        }
    }

    /// Returns why a Service that is remembered and in no readable file may stand in another one.
    pub(crate) fn why_hidden(&self, service: &ServiceKey) -> Vec<Reason> {
        let key = ObjectKey::Service(service.clone());
        let own = self.parts.iter().find_map(|part| part.spoilt.get(&key));
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            return own.clone();
        }
        let unclear = self.parts.iter().filter(|part| part.unclear);
        let errors = unclear
            .flat_map(|part| &part.reasons)
            .filter(|reason| reason.severity == Severity::Error);
        let troubles = self.troubles.values().filter(|_| self.unlisted);
        errors.chain(troubles).take(NAMED).cloned().collect()
    }

    /// Whether an address pool may stand in a file that could not be read, or not quite.
    pub(crate) fn may_hide_pools(&self) -> bool {
        let is_pool = |key: &ObjectKey| matches!(key, ObjectKey::Pool(_));
        // What an empty file held is remembered, if it held a pool.
        let hides = |part: &Part| part.unclear && !part.is_empty || part.spoilt.keys().any(is_pool);
        self.unlisted || self.parts.iter().any(hides)
    }

    /// Returns the objects that may be others than at the last [`Self::settle`].
    pub(crate) fn changes(&self) -> Changes {
        let mut objects = self.overlay(Some(&self.touched)).objects;
        let now = |key: &ObjectKey| (key.clone(), objects.remove(key));
        self.touched.iter().map(now).collect()
    }

    /// Lets everything that changed so far count as known.
    pub(crate) fn settle(&mut self) {
        self.touched.clear();
    }

    /// Returns what is wrong, by file. Files without a finding are left out.
    pub(crate) fn problems(&self) -> BTreeMap<Arc<str>, Vec<Reason>> {
        let mut duplicates = self.overlay(Some(&self.contested)).duplicates;
        let mut problems = BTreeMap::new();
        for part in &self.parts {
            let mut reasons = part.reasons.clone();
            reasons.extend(duplicates.remove(&part.name).unwrap_or_default());
            if !reasons.is_empty() {
                problems.insert(part.name.clone(), reasons);
            }
        }
        for (name, reason) in &self.troubles {
            let reasons: &mut Vec<Reason> = problems.entry(name.clone()).or_default();
            reasons.push(reason.clone());
        }
        problems
    }

    /// Returns all objects, and what is wrong.
    pub(crate) fn merged(&self) -> Merged {
        Merged {
            objects: self.overlay(None).objects,
            problems: self.problems(),
        }
    }

    /// Lays the files over each other, as far as these objects stand in them; `None`: all.
    fn overlay(&self, keys: Option<&BTreeSet<ObjectKey>>) -> Overlay {
        let places = |keys: &BTreeSet<ObjectKey>| -> HashSet<&Arc<str>> {
            let places = keys.iter().filter_map(|key| self.places.get(key));
            places.flatten().collect()
        };
        let holders = keys.map(places);
        let concerned = |part: &&Part| match &holders {
            Some(holders) => holders.contains(&part.name),
            None => true,
        };
        let parts: Vec<&Part> = self.parts.iter().filter(concerned).collect();
        let asked = |found: &&Found| keys.is_none_or(|keys| keys.contains(&found.key));
        let mut overlay = Overlay::default();
        let mut first: HashMap<&ObjectKey, &Origin> = HashMap::new();
        for part in &parts {
            for found in part.fresh.iter().filter(asked) {
                if let Some(first) = first.get(&found.key) {
                    let duplicates = overlay.duplicates.entry(part.name.clone()).or_default();
                    duplicates.push(duplicate(found, first));
                    continue;
                }
                first.insert(&found.key, &found.origin);
                let object = found.object.clone();
                overlay.objects.insert(found.key.clone(), object);
            }
        }
        // What is only kept gives way to what is fresh, wherever it stands.
        for found in parts.iter().flat_map(|part| &part.kept).filter(asked) {
            overlay
                .objects
                .entry(found.key.clone())
                .or_insert_with(|| found.object.clone());
        }
        overlay
    }
}

// === impl UnreadableParts ===

impl UnreadableParts<'_> {
    /// Whether an object may stand in a file that could not be read, or not quite.
    pub(crate) fn may_hide(&self, key: &ObjectKey) -> bool {
        self.all || self.spoilt.contains(key)
    }
}

fn duplicate(found: &Found, first: &Origin) -> Reason {
    Reason::error(
        Code::DuplicateObject,
        format!(
            "{} is already defined in {first}; this one is ignored",
            found.key
        ),
    )
    .remedy("remove one of them")
    .origin(Some(found.origin.clone()))
}

fn is_inside(file: &str, folder: &str) -> bool {
    std::path::Path::new(file).starts_with(folder)
}

#[cfg(test)]
mod tests;
