//! Circles of imports between modules that have the same parent.
//!
//! A module counts together with those below it, and what parent and child import from each other
//! does not count: so a crate without a circle can be read in one order at each level.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Crate;

/// Modules of one parent that import each other in circles.
#[derive(Debug, Default)]
pub struct Cycle {
    /// How many modules are in a circle.
    pub modules: usize,
    /// One import for each pair of them.
    pub imports: Vec<String>,
}

/// Which module imports which, with the first place.
type Edges = BTreeMap<(String, String), String>;

/// Returns the circles by the path of the parent.
pub fn cycles(sources: &Crate) -> BTreeMap<String, Cycle> {
    let mut levels: BTreeMap<String, Edges> = BTreeMap::new();
    for file in sources.files() {
        for (name, line) in &file.names {
            let target = sources.defining_module(name);
            let common = file
                .module
                .iter()
                .zip(&target)
                .take_while(|(one, other)| one == other)
                .count();
            let (Some(from), Some(to)) = (file.module.get(common), target.get(common)) else {
                continue;
            };
            let mut parent = vec!["crate".to_owned()];
            parent.extend_from_slice(&target[..common]);
            levels
                .entry(parent.join("::"))
                .or_default()
                .entry((from.clone(), to.clone()))
                .or_insert_with(|| format!("{from} -> {to} ({}:{line})", file.path));
        }
    }
    let cycles = levels
        .into_iter()
        .map(|(parent, edges)| (parent, cycle(&edges)));
    cycles.filter(|(_, cycle)| cycle.modules > 0).collect()
}

fn cycle(edges: &Edges) -> Cycle {
    let mut modules = BTreeSet::new();
    let mut imports = Vec::new();
    for ((from, to), place) in edges {
        if reaches(edges, to, from) {
            modules.extend([from, to]);
            imports.push(place.clone());
        }
    }
    Cycle {
        modules: modules.len(),
        imports,
    }
}

fn reaches(edges: &Edges, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        for (one, other) in edges.keys() {
            if one == module && seen.insert(other) {
                next.push(other);
            }
        }
    }
    false
}
