//! Builders.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use landfall_metallb::{Config, Findings, ObjectName};
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{Cooling, PoolRow, ResourceKind, ResourceRow};
use serde_json::Value;

pub const NAMESPACE: &str = "metallb-system";

pub fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = all
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}

/// An object that was created at a second.
pub fn aged(kind: ResourceKind, name: &str, created: i64, spec: Value) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        kind,
        api_version: if kind == ResourceKind::BgpPeer {
            "metallb.io/v1beta2".to_owned()
        } else {
            "metallb.io/v1beta1".to_owned()
        },
        key: ServiceKey::new(NAMESPACE, name),
        uid: None,
        generation: None,
        created: Some(Timestamp::from_second(created).unwrap()),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        spec,
        accepted: None,
        cooling: Cooling::default(),
        source: None,
    })
}

pub fn object(kind: ResourceKind, name: &str, spec: Value) -> Arc<ResourceRow> {
    aged(kind, name, 0, spec)
}

pub fn older(row: &Arc<ResourceRow>) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        api_version: "metallb.io/v1beta1".to_owned(),
        ..ResourceRow::clone(row)
    })
}

/// A pool that was created at a second.
pub fn aged_pool(name: &str, created: i64, addresses: &[&str]) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: addresses.iter().map(|it| (*it).to_owned()).collect(),
        auto_assign: true,
        resource: Some(aged(
            ResourceKind::IpAddressPool,
            name,
            created,
            Value::Null,
        )),
        ..PoolRow::default()
    })
}

pub fn pool(name: &str, addresses: &[&str]) -> Arc<PoolRow> {
    aged_pool(name, 0, addresses)
}

pub fn labelled(pool: &Arc<PoolRow>, all: &[(&str, &str)]) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        labels: labels(all),
        ..PoolRow::clone(pool)
    })
}

pub fn build(pools: &[Arc<PoolRow>], rows: &[Arc<ResourceRow>]) -> (Config, Findings) {
    Config::build(pools, rows, &Config::default())
}

/// What is wrong with one object.
pub fn of<'f>(findings: &'f Findings, kind: ResourceKind, name: &str) -> &'f [Reason] {
    let key = ServiceKey::new(NAMESPACE, name);
    findings.of(&ObjectName { kind, key })
}

/// Field, value and message, for comparison.
pub fn brief(reason: &Reason) -> (String, String, String) {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (
        text(&reason.field),
        text(&reason.value),
        reason.message.clone(),
    )
}

pub fn pool_names(config: &Config) -> Vec<&str> {
    config
        .pools()
        .iter()
        .map(|pool| pool.name().as_str())
        .collect()
}
