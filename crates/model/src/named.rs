//! Which Secrets a Service names.

use std::collections::BTreeSet;

use crate::id::ServiceKey;
use crate::rows::ServiceRow;
use crate::status::ACCEPTED_VERSION;
use crate::{dialect, wire};

/// What the name of every option has in it that names Secrets. Most Services have no such
/// annotation, and theirs are not read for it.
const NAMES_SECRETS: &str = "-secret";

/// Returns how many Secrets are watched for a Service, or would be.
pub fn count(row: &ServiceRow) -> usize {
    now(row).union(&accepted(row)).count()
}

/// Returns the Secrets of the newest version.
pub fn now(row: &ServiceRow) -> BTreeSet<ServiceKey> {
    secrets_of(row, row)
}

/// Returns the Secrets of the version that is on record as the one being served.
pub fn accepted(row: &ServiceRow) -> BTreeSet<ServiceKey> {
    let recorded = row.status.marks.get(ACCEPTED_VERSION);
    let naming = recorded.filter(|text| text.contains(NAMES_SECRETS));
    let served = naming.and_then(|text| wire::accepted_from_text(text, row).ok());
    served.map_or_else(BTreeSet::new, |version| secrets_of(row, &version))
}

fn secrets_of(service: &ServiceRow, version: &ServiceRow) -> BTreeSet<ServiceKey> {
    let mut annotations = version.annotations.keys();
    if !annotations.any(|annotation| annotation.contains(NAMES_SECRETS)) {
        return BTreeSet::new();
    }
    let options = dialect::options(&version.annotations, &version.ports);
    options
        .secrets()
        .map(|name| ServiceKey::shared(service.key.shared_namespace(), &name.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::dialect::DIALECTS;

    fn row(annotations: &[(&str, &str)]) -> ServiceRow {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u",
                "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "https", "port": 443}]},
        });
        let shape: wire::Service = serde_json::from_value(object).unwrap();
        shape.into_row().unwrap()
    }

    fn names(secrets: &BTreeSet<ServiceKey>) -> Vec<String> {
        secrets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_name_of_every_option_that_names_secrets_shows_it() {
        let mut naming = Vec::new();
        for dialect in DIALECTS {
            for option in dialect.rows {
                let annotation = format!("{}{}", dialect.prefix, option.name);
                let row = row(&[(&annotation, option.example)]);
                let options = dialect::options(&row.annotations, &row.ports);
                if options.secrets().next().is_some() {
                    assert!(annotation.contains(NAMES_SECRETS), "{annotation}");
                    naming.push(annotation);
                }
            }
        }
        let expected = ["tls-secret", "member-ca-secret", "member-client-secret"];
        assert_eq!(naming, expected.map(|name| format!("landfall.dev/{name}")));
    }

    #[test]
    fn secrets_are_named_for_all_ports_and_for_one_and_by_the_version_that_is_served() {
        let old = row(&[
            ("landfall.dev/tls-secret.443", "old-b, old-a"),
            ("landfall.dev/member-client-secret", "client"),
        ]);
        let mut new = row(&[
            ("landfall.dev/tls-secret.https", "new"),
            ("landfall.dev/member-ca-secret", "client"),
            ("landfall.dev/tls-secret.80", "of-no-port"),
            ("landfall.dev/hostname", "web-secret"),
        ]);
        assert_eq!(names(&now(&new)), ["shop/client", "shop/new"]);
        assert_eq!(names(&accepted(&new)), [] as [&str; 0]);
        assert_eq!(count(&new), 2);
        let text = wire::accepted_to_text(&old).unwrap();
        new.status.marks.insert(ACCEPTED_VERSION.to_owned(), text);
        let expected = ["shop/client", "shop/old-a", "shop/old-b"];
        assert_eq!(names(&accepted(&new)), expected);
        assert_eq!(count(&new), 4);
    }
}
