//! The decision about a whole claim: each part is asked for, and further ones all or none. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{Allocator, Decision, Pool, PoolName, Proposal, Refusal, Request, Terms, Why};
use landfall_model::Uid;
use landfall_model::intent::{Intent, LoadBalancerSpec};

use crate::parts;
use crate::request::request;

/// A part of a claim: at most one address of each family.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) uid: Uid,
    pub(crate) held: Vec<IpAddr>,
    pub(crate) terms: Option<Terms>,
}

/// A request to the allocator and its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The request; without one the Service asks for something impossible.
    pub request: Option<Request>,
    /// The answer: what it should hold.
    pub outcome: Result<Proposal, Refusal>,
    /// What it holds was claimed on other terms: ports, or a sharing key.
    pub terms_changed: bool,
}

/// What changes of a claim.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Requests with answers that are claimed.
    pub(crate) claims: Vec<(Request, Proposal)>,
    /// Parts that end.
    pub(crate) ends: Vec<Uid>,
    /// Why.
    pub(crate) because: String,
}

/// What a Service shall hold.
pub(crate) struct Verdict {
    /// The answer to report: a refused one, or one with something unmet, before others.
    pub(crate) answer: Answer,
    pub(crate) change: Change,
    /// What it holds afterwards, IPv4 first.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Decides what a Service with these parts shall hold.
pub(crate) fn decide(
    allocator: &Allocator,
    want: &Intent,
    spec: &LoadBalancerSpec,
    parts: &[Part],
) -> Verdict {
    let mut case = Case {
        trial: Cow::Borrowed(allocator),
        want,
        spec,
        parts,
        pool: None,
        asked: BTreeMap::new(),
        addresses: BTreeMap::new(),
        change: Change::default(),
    };
    let answer = case.run();
    let addresses = case.addresses.into_values().flatten();
    Verdict {
        answer,
        change: case.change,
        addresses: ipv4_first(addresses),
    }
}

/// Puts addresses in the order of a status. Those of one family stay in theirs.
pub(crate) fn ipv4_first(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// One Service, and what was decided so far.
struct Case<'a> {
    /// The allocator; a copy once something would be claimed, while more is to be asked.
    trial: Cow<'a, Allocator>,
    want: &'a Intent,
    spec: &'a LoadBalancerSpec,
    parts: &'a [Part],
    /// The pool of the first part, from which the others come, too.
    pool: Option<PoolName>,
    /// What each part asks for by name.
    asked: BTreeMap<usize, Vec<IpAddr>>,
    /// What each part holds in the end.
    addresses: BTreeMap<usize, Vec<IpAddr>>,
    change: Change,
}

impl Case<'_> {
    fn run(&mut self) -> Answer {
        let count = usize::from(self.spec.address.count.max(1));
        let held = |number: &usize| !self.held(*number).is_empty();
        let mut taken: Vec<usize> = (0..self.parts.len()).filter(held).collect();
        // What is added comes behind what is there: nodes are elected by the first address.
        let behind = taken.last().map_or(0, |last| last + 1);
        let numbers = (behind..parts::MOST).chain(0..behind);
        let missing = numbers.filter(|number| !held(number));
        let mut missing: Vec<usize> = missing.collect();
        // What is still on record is its own again before it gets anything else.
        missing.sort_by_key(|number| self.recorded(*number).is_empty());
        // Of several it keeps those that it asks for.
        taken.sort_by_key(|number| !self.is_requested(*number));
        missing.truncate(count.saturating_sub(taken.len()));
        let (kept, ended) = taken.split_at(count.min(taken.len()));
        let wanted = kept.iter().chain(&missing);
        self.asked = parts::distribute(
            &self.spec.address.requested,
            wanted.map(|number| match self.held(*number) {
                held if held.is_empty() => (*number, self.recorded(*number)),
                held => (*number, held),
            }),
        );
        let more = kept.len() > 1 || !missing.is_empty();
        let kept: Vec<Answer> = kept.iter().map(|number| self.keep(*number, more)).collect();
        for part in ended.iter().filter_map(|number| self.parts.get(*number)) {
            self.change.ends.push(part.uid.clone());
            self.explain("fewer addresses are wanted");
        }
        let is_unmet = |it: &&Answer| it.outcome.as_ref().is_ok_and(|it| it.unmet.is_some());
        let is_refused = |it: &&Answer| it.outcome.is_err();
        let unmet = kept.iter().find(is_refused);
        let unmet = unmet.or(kept.iter().find(is_unmet)).cloned();
        let first = kept.into_iter().next();
        let is_met = self.has_what_it_asks_for();
        let is_more = is_met && !missing.is_empty();
        let refused = is_more.then(|| self.add(&missing, first.is_none()));
        if !is_met || refused.as_ref().is_some_and(Result::is_err) {
            self.stay();
        }
        let reported = match refused {
            Some(Err(answer)) => Some(*answer),
            Some(Ok(answer)) => unmet.or(first).or(Some(*answer)),
            None => unmet.or(first),
        };
        // At least one part is kept or missing.
        reported.unwrap_or_else(|| self.ask(&self.trial, 0, None))
    }

    /// Decides about a part that holds something. `more`: others are asked for after it.
    fn keep(&mut self, number: usize, more: bool) -> Answer {
        let answer = self.ask(&self.trial, number, self.pool.clone());
        let uid = parts::part(&self.want.uid, number);
        let held = self.held(number);
        let addresses = match (&answer.outcome, &answer.request) {
            (Ok(proposal), _) if proposal.addresses.is_empty() => {
                if more {
                    self.trial.to_mut().retire(&uid);
                }
                self.explain(&because(proposal));
                self.change.ends.push(uid.clone());
                Vec::new()
            }
            (Ok(proposal), Some(request))
                if answer.terms_changed || proposal.changes_addresses() =>
            {
                if more {
                    // What is refused here is refused again when it is carried out.
                    self.trial.to_mut().claim(request, proposal).ok();
                }
                self.explain(&because(proposal));
                self.change.claims.push((request.clone(), proposal.clone()));
                proposal.addresses.iter().collect()
            }
            _ => held,
        };
        if self.pool.is_none() {
            // The pool on record may have been split since.
            let lies_in = addresses.first().and_then(|it| self.trial.pool_of(*it));
            let claimed = || self.trial.held(&uid).and_then(|claim| claim.pool.clone());
            let pool = lies_in.map(|pool| pool.name().clone()).or_else(claimed);
            let is_there = |pool: &PoolName| self.trial.pools().get(pool).is_some();
            self.pool = pool.filter(is_there);
        }
        self.addresses.insert(number, addresses);
        answer
    }

    /// Returns whether the parts that hold something get all that they ask for by name.
    fn has_what_it_asks_for(&self) -> bool {
        let mut parts = self.addresses.iter();
        parts.all(|(number, addresses)| {
            let mut asked = self.asked.get(number).into_iter().flatten();
            asked.all(|address| addresses.contains(address))
        })
    }

    /// Leaves the parts where they are that would move to addresses which the Service asks for: it
    /// gets all of these or none.
    fn stay(&mut self) {
        let moves = |(_, proposal): &(Request, Proposal)| {
            let why = match &proposal.decision {
                Decision::Move { why, .. } => Some(why),
                _ => None,
            };
            matches!(why, Some(Why::AddressesRequested { .. }))
        };
        let claims = std::mem::take(&mut self.change.claims);
        let (moving, others): (Vec<_>, Vec<_>) = claims.into_iter().partition(moves);
        self.change.claims = others;
        for number in 0..self.parts.len() {
            let uid = parts::part(&self.want.uid, number);
            let mut moving = moving.iter();
            if moving.any(|(request, _)| request.claimant.uid == uid) {
                self.addresses.insert(number, self.held(number));
            }
        }
        if self.change.is_empty() {
            self.change.because.clear();
        }
    }

    /// Adds parts: all of them, or none. `free`: they may be of any pool.
    fn add(&mut self, numbers: &[usize], free: bool) -> Result<Box<Answer>, Box<Answer>> {
        let mut found = self.fill(numbers, self.pool.clone());
        if found.is_err() && numbers.len() > 1 && free && self.spec.address.pool.is_none() {
            let mut pools = self.trial.pools().by_priority().map(Pool::name);
            let other = pools.find_map(|pool| self.fill(numbers, Some(pool.clone())).ok());
            found = other.map_or(found, Ok);
        }
        let answers = found?;
        for (number, answer) in numbers.iter().zip(&answers) {
            if let (Ok(proposal), Some(request)) = (&answer.outcome, &answer.request) {
                let addresses = proposal.addresses.iter().collect();
                self.addresses.insert(*number, addresses);
                self.change.claims.push((request.clone(), proposal.clone()));
            }
        }
        self.explain(if free {
            "it has no address yet"
        } else {
            "more addresses are wanted"
        });
        let is_unmet = |it: &&Answer| it.outcome.as_ref().is_ok_and(|it| it.unmet.is_some());
        let reported = answers.iter().find(is_unmet).or(answers.first());
        let reported = reported.cloned();
        Ok(Box::new(
            reported.unwrap_or_else(|| self.ask(&self.trial, 0, None)),
        ))
    }

    /// Asks for parts of one pool. The first refusal is the answer to all.
    fn fill(
        &self,
        numbers: &[usize],
        mut pool: Option<PoolName>,
    ) -> Result<Vec<Answer>, Box<Answer>> {
        let mut trial = Cow::Borrowed(&*self.trial);
        let mut answers: Vec<Answer> = Vec::new();
        for number in numbers {
            let last = answers.last();
            if let Some((Ok(proposal), Some(request))) = last.map(|it| (&it.outcome, &it.request)) {
                trial.to_mut().claim(request, proposal).ok();
                pool.clone_from(&proposal.pool);
            }
            let answer = self.ask(&trial, *number, pool.clone());
            if answer.outcome.is_err() {
                return Err(Box::new(answer));
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Asks for one part, of a pool if there is one.
    fn ask(&self, allocator: &Allocator, number: usize, pool: Option<PoolName>) -> Answer {
        let asked = self.asked.get(&number).map(Vec::as_slice);
        let (request, outcome) = match request(self.want, self.spec, asked.unwrap_or_default()) {
            Ok(mut request) => {
                if number > 0 {
                    let claimant = Arc::make_mut(&mut request.claimant);
                    claimant.uid = parts::part(&self.want.uid, number);
                }
                request.pool = pool.or(request.pool);
                let outcome = allocator.propose(&request);
                (Some(request), outcome)
            }
            Err(refusal) => (None, Err(refusal)),
        };
        let part = self.parts.get(number);
        let terms = part.and_then(|part| part.terms.as_ref());
        let wanted = request.as_ref().map(|request| &request.claimant.terms);
        Answer {
            terms_changed: wanted.is_some() && terms.is_some() && terms != wanted,
            request,
            outcome,
        }
    }

    fn held(&self, number: usize) -> Vec<IpAddr> {
        let part = self.parts.get(number);
        part.map(|part| part.held.clone()).unwrap_or_default()
    }

    /// What the record of a part names although it gave that up.
    fn recorded(&self, number: usize) -> Vec<IpAddr> {
        let recorded = self.trial.recorded(&parts::part(&self.want.uid, number));
        recorded.map_or_else(Vec::new, |it| it.iter().collect())
    }

    fn is_requested(&self, number: usize) -> bool {
        let requested = &self.spec.address.requested;
        let mut held = self.held(number).into_iter();
        held.any(|address| requested.contains(&address))
    }

    /// Notes why something changes. The first reason counts.
    fn explain(&mut self, because: &str) {
        if self.change.because.is_empty() {
            because.clone_into(&mut self.change.because);
        }
    }
}

impl Change {
    /// Returns whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.ends.is_empty()
    }
}

fn because(proposal: &Proposal) -> String {
    match &proposal.decision {
        Decision::Keep => "its ports or its sharing key changed".to_owned(),
        Decision::Claim => "it has no address yet".to_owned(),
        Decision::Gain { .. } => "it gets the missing family".to_owned(),
        Decision::Drop { why, .. } | Decision::Move { why, .. } | Decision::GiveUp { why, .. } => {
            why.to_string()
        }
    }
}
