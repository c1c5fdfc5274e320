//! What is on record when reconciles begin: the claims, and the Services that are to be handled.

use std::collections::{BTreeMap, HashSet};

use landfall_model::ServiceKey;
use landfall_model::intent::Claim;
use landfall_model::provider::Provider;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ConditionType;

use super::{Engine, prepare};
use crate::claims::{Candidate, candidate, foreign_claim, settle_all};
use crate::instance::InstanceId;
use crate::parallel;
use crate::report::Report;
use crate::select::Ownership;
use crate::store::Record;

/// What a start asks of one Service.
struct Recorded {
    key: ServiceKey,
    /// What it claims, and from which instance.
    candidate: Option<(InstanceId, Candidate)>,
    /// What it claims where no instance serves it.
    foreign: Option<Claim>,
    /// The instance that serves it.
    instance: Option<InstanceId>,
    /// Whether its newest version is served.
    served: bool,
}

impl<P: Provider, R: Report> Engine<P, R> {
    /// Loads every claim on record before the first reconcile, and marks what has to be handled
    /// before this instance is ready.
    pub(super) fn restore_claims(&mut self) {
        let mut services = self.read_record();
        let found = services.iter_mut().filter_map(|it| it.candidate.take());
        let record = settle_all(found, &self.handle.providers);
        let served = services.iter().filter(|it| it.served);
        let served: HashSet<&ServiceKey> = served.map(|it| &it.key).collect();
        for (provider, mut claims) in self.handle.providers.iter().zip(record.claims) {
            provider.restore_claims(&claims);
            claims.retain(|claim| served.contains(&claim.service));
            provider.reserve_listeners(&claims);
        }
        self.forfeited = record.forfeited;
        for (key, tracked) in &mut self.tracked {
            let row = self.world.service(key);
            let row = row.filter(|row| row.uid == tracked.uid);
            let published = row.map_or_else(Vec::new, |row| row.status.ingress.clone());
            tracked.set_published(published);
        }
        // After what is ours: where both are on record with an address, ours goes on being served.
        let foreign = services.iter_mut().filter_map(|it| it.foreign.take());
        self.reserve_all(foreign.map(|it| (it.service.clone(), it)).collect());
        let unhandled = services.into_iter().filter_map(|it| {
            let record = Record {
                instance: Some(it.instance?),
                ..Record::new(self.world.kept(&it.key)?)
            };
            Some((it.key, record))
        });
        let records: BTreeMap<ServiceKey, Record> = unhandled.collect();
        // A reconcile of each comes now: tables that grow are copied again and again.
        self.tracked.reserve(records.len());
        self.by_uid.reserve(records.len());
        self.recalled.retain(|key, _| records.contains_key(key));
        self.handle.store.write(|pages| pages.records = records);
    }

    /// Reads every Service that may have something on record here, or is to be handled. An unpacked
    /// row takes several times the room of what is read of it, so that none is kept.
    fn read_record(&self) -> Vec<Recorded> {
        let concerned = self.world.keys().filter(|key| {
            let affiliation = self.world.affiliation(key);
            self.is_relevant(key)
                || affiliation.is_some_and(|it| it.published || it.instance.is_some())
        });
        let concerned: Vec<ServiceKey> = concerned.collect();
        let recorded = parallel::map(&concerned, parallel::SERVICES, |key| {
            let row = self.recalled.get(key).cloned();
            row.or_else(|| self.world.service(key))
                .map(|row| self.recorded(&row))
        });
        recorded.into_iter().flatten().collect()
    }

    fn recorded(&self, row: &ServiceRow) -> Recorded {
        let classes = &self.config.classes;
        Recorded {
            key: row.key.clone(),
            candidate: candidate(row, &self.world, classes),
            foreign: foreign_claim(row, &self.world, classes),
            instance: match self.validate(row) {
                Ownership::Ours(instance) => Some(instance),
                Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
            },
            served: prepare::stands(row, ConditionType::Programmed),
        }
    }
}
