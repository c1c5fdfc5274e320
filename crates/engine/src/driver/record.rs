//! What is on record when reconciles begin: the claims, and the Services that are to be handled.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ConditionType;

use super::{Engine, prepare};
use crate::claims::on_record;
use crate::parallel;
use crate::report::Report;
use crate::select::Ownership;
use crate::store::Record;

impl<P: Provider, R: Report> Engine<P, R> {
    /// Loads every claim on record before the first reconcile, and marks what has to be handled
    /// before this instance is ready.
    pub(super) fn restore_claims(&mut self) {
        // Unpacking a row costs more than all that is asked of it here.
        let rows = self.rows_on_record();
        let record = on_record(
            rows.iter().cloned(),
            &self.world,
            &self.config.classes,
            &self.handle.providers,
        );
        let served = rows
            .iter()
            .filter(|row| prepare::stands(row, ConditionType::Programmed));
        let served: HashSet<&ServiceKey> = served.map(|row| &row.key).collect();
        for (provider, claims) in self.handle.providers.iter().zip(&record.claims) {
            provider.restore_claims(claims);
            let claims = claims
                .iter()
                .filter(|claim| served.contains(&claim.service));
            provider.reserve_listeners(&claims.cloned().collect::<Vec<_>>());
        }
        self.forfeited = record.forfeited;
        for (key, tracked) in &mut self.tracked {
            let row = self.world.service(key);
            let row = row.filter(|row| row.uid == tracked.uid);
            tracked.published = row.map_or_else(Vec::new, |row| row.status.ingress.clone());
        }
        // After what is ours: where both are on record with an address, ours goes on being served.
        self.reserve_all(&rows);
        let unhandled = rows.iter().filter_map(|row| {
            let Ownership::Ours(instance) = self.validate(row) else {
                return None;
            };
            let record = Record {
                instance: Some(instance),
                ..Record::new(self.world.keep(row))
            };
            Some((row.key.clone(), record))
        });
        let records: BTreeMap<ServiceKey, Record> = unhandled.collect();
        // A reconcile of each comes now: tables that grow are copied again and again.
        self.tracked.reserve(records.len());
        self.by_uid.reserve(records.len());
        let recalled = rows.iter().filter(|row| records.contains_key(&row.key));
        self.recalled = recalled.map(|row| (row.key.clone(), row.clone())).collect();
        self.handle.store.write(|pages| pages.records = records);
    }

    /// Every Service that may have something on record here, or is to be handled.
    pub(super) fn rows_on_record(&self) -> Vec<Arc<ServiceRow>> {
        let concerned = self.world.keys().filter(|key| {
            let affiliation = self.world.affiliation(key);
            self.is_relevant(key)
                || affiliation.is_some_and(|it| it.published || it.instance.is_some())
        });
        let concerned: Vec<ServiceKey> = concerned.collect();
        let (world, recalled) = (&*self.world, &self.recalled);
        let rows = parallel::map(&concerned, parallel::SERVICES, |key| {
            let row = recalled.get(key).cloned();
            row.or_else(|| world.service(key))
        });
        rows.into_iter().flatten().collect()
    }
}
