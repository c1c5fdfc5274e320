//! Instances that are switched off: their Services are kept away from the engine, so that nobody touches them.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_engine::Classes;
use landfall_engine::select::Belongs;
use landfall_model::rows::{Fact, NamespaceRow};

/// Takes the Services of some instances out of a stream of facts.
#[derive(Debug)]
pub struct Muted {
    classes: Classes,
    /// By position.
    off: Vec<bool>,
    namespaces: HashMap<Arc<str>, Arc<NamespaceRow>>,
}

// === impl Muted ===

impl Muted {
    /// `off` says which of the instances, by position, are switched off.
    pub fn new(classes: Classes, off: Vec<bool>) -> Self {
        Self {
            classes,
            off,
            namespaces: HashMap::new(),
        }
    }

    /// What the engine is to know of a fact. A Service of an instance that is switched off is gone
    /// to it, in case that it was another instance's before.
    pub fn pass(&mut self, fact: Fact) -> Fact {
        if !self.off.contains(&true) {
            return fact;
        }
        match fact {
            Fact::Namespace(row) => {
                self.namespaces.insert(row.name.clone(), row.clone());
                Fact::Namespace(row)
            }
            Fact::NamespaceGone(name) => {
                self.namespaces.remove(&name);
                Fact::NamespaceGone(name)
            }
            Fact::Service(row) => {
                let namespace = self.namespaces.get(row.key.namespace());
                let belongs = self.classes.judge(&row, namespace.map(AsRef::as_ref));
                match belongs {
                    Belongs::Ours(instance) if self.off.get(instance) == Some(&true) => {
                        Fact::ServiceGone(row.key.clone())
                    }
                    _ => Fact::Service(row),
                }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

    use super::*;

    #[test]
    fn only_the_services_of_an_instance_that_is_off_are_kept_away() {
        let names = vec!["here".to_owned(), "cloud".to_owned()];
        let classes = Classes::new(names, Some("cloud"));
        let mut muted = Muted::new(classes, vec![false, true]);
        let mut passes = |class: Option<&str>| {
            let service = svc("web").port(80);
            let row = service.with(|row| row.class = class.map(Into::into)).row();
            matches!(muted.pass(Fact::Service(row)), Fact::Service(_))
        };
        assert!(!passes(None));
        assert!(!passes(Some("landfall.dev/cloud")));
        assert!(passes(Some("landfall.dev/here")));
        assert!(passes(Some("example.com/cloud")));
        assert!(passes(Some("landfall.dev/nobody")));
    }
}
