//! Planning of claims: pure.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::Decision;
use landfall_model::Uid;
use landfall_model::intent::Intent;
use landfall_model::plan::Planned;
use landfall_model::provider::Published;
use landfall_model::reason::Reason;

use crate::addressing::Holdings;
use crate::status::refusal_reason;
use crate::step::AddressStep;

/// The changes of a Service's claim.
#[derive(Clone, Debug)]
pub struct AddressPlan {
    /// The addresses that the Service holds in the end: those to use.
    pub addresses: Vec<IpAddr>,
    /// The step after which it holds them and that is on record, if one is needed.
    change: Option<Planned<AddressStep>>,
    /// The step that releases what it gave up.
    release: Option<Planned<AddressStep>>,
}

/// Plans the claim of a Service that asks for addresses. `in_use`: the provider uses an address
/// for it; `publish`: what is recorded of addresses.
///
/// # Errors
/// Reasons why the Service can't have an address, if it has none that it could keep.
pub fn plan(
    want: &Intent,
    have: &Holdings,
    in_use: bool,
    publish: impl Fn(&[IpAddr]) -> Published,
) -> Result<AddressPlan, Vec<Reason>> {
    let (addresses, change) = change(want, have, in_use, publish)?;
    let earlier = have.leaving.iter().chain(&have.held);
    let given_up: Vec<IpAddr> = earlier
        .filter(|address| !addresses.contains(address))
        .copied()
        .collect();
    let release = release(want, given_up, "no record names it any more");
    Ok(AddressPlan {
        addresses,
        change,
        release,
    })
}

/// Plans the end of the claim of a Service that asks for no load balancer.
pub fn plan_removal(want: &Intent, have: &Holdings) -> AddressPlan {
    AddressPlan {
        addresses: Vec::new(),
        change: None,
        release: release(want, have.held.clone(), "the Service needs none"),
    }
}

impl AddressPlan {
    /// Puts the steps that use the addresses, or stop to use them, in their place: an address is
    /// claimed, and that is recorded, before it is used. It is released after its use has ended and
    /// no record names it any more.
    pub fn around<S: From<AddressStep>>(self, mut steps: Vec<Planned<S>>) -> Vec<Planned<S>> {
        if let Some(change) = self.change.map(converted) {
            let at = if self.addresses.is_empty() {
                steps.len()
            } else {
                0
            };
            steps.insert(at, change);
        }
        steps.extend(self.release.map(converted));
        steps
    }
}

/// The addresses that a Service holds in the end, and the step that makes and records it.
type Change = (Vec<IpAddr>, Option<Planned<AddressStep>>);

fn change(
    want: &Intent,
    have: &Holdings,
    in_use: bool,
    publish: impl Fn(&[IpAddr]) -> Published,
) -> Result<Change, Vec<Reason>> {
    let uid = want.uid.clone();
    let record = |addresses: Vec<IpAddr>| {
        let step = AddressStep::Record {
            uid: uid.clone(),
            publish: publish(&addresses),
            addresses: addresses.clone(),
        };
        let because = "it was claimed and may not be recorded yet";
        let step = have.unrecorded.then(|| planned(step, because.to_owned()));
        Ok((addresses, step))
    };
    let Some(answer) = &have.answer else {
        return record(have.held.clone());
    };
    if let Some(part) = &have.ended {
        let because = "fewer addresses are wanted";
        return Ok(reduce(want, have, part, because.to_owned(), publish));
    }
    let proposal = match &answer.outcome {
        Ok(proposal) => proposal,
        // A refused change keeps what is held and in use. What was given up is cleared away first.
        Err(_) if !have.held.is_empty() || in_use || !have.is_cleared() => {
            return record(have.held.clone());
        }
        Err(refusal) => return Err(vec![refusal_reason(want, refusal)]),
    };
    let (before, after) = &have.others;
    let granted = proposal.addresses.iter();
    let addresses: Vec<IpAddr> = before.iter().copied().chain(granted).collect();
    let addresses = [addresses, after.clone()].concat();
    let because = match &proposal.decision {
        Decision::Keep if !answer.terms_changed => return record(addresses),
        Decision::Keep => "its ports or its sharing key changed".to_owned(),
        Decision::Claim if have.held.is_empty() => "it has no address yet".to_owned(),
        Decision::Claim => "more addresses are wanted".to_owned(),
        Decision::Gain { .. } => "it gets the missing family".to_owned(),
        Decision::Drop { why, .. } | Decision::Move { why, .. } => why.to_string(),
        Decision::GiveUp { why, .. } if !addresses.is_empty() => {
            let part = answer.request.as_ref().map(|it| &it.claimant.uid);
            let part = part.unwrap_or(&want.uid);
            return Ok(reduce(want, have, part, why.to_string(), publish));
        }
        Decision::GiveUp { why, .. } => {
            let addresses_held = have.held.clone();
            let step = AddressStep::Withdraw {
                uid,
                addresses: addresses_held,
            };
            return Ok((addresses, Some(planned(step, why.to_string()))));
        }
    };
    let step = answer.request.as_ref().map(|request| {
        let step = AddressStep::Claim {
            uid: uid.clone(),
            addresses: addresses.clone(),
            pool: proposal
                .pool
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            publish: publish(&addresses),
            grant: Arc::new((request.clone(), proposal.clone())),
        };
        Planned {
            claims: true,
            ..planned(step, because)
        }
    });
    Ok((addresses, step))
}

/// Ends one part of a claim, and keeps the others.
fn reduce(
    want: &Intent,
    have: &Holdings,
    part: &Uid,
    because: String,
    publish: impl Fn(&[IpAddr]) -> Published,
) -> Change {
    let (before, after) = &have.others;
    let addresses = [&before[..], after].concat();
    let step = AddressStep::Reduce {
        uid: want.uid.clone(),
        publish: publish(&addresses),
        addresses: addresses.clone(),
        part: part.clone(),
    };
    (addresses, Some(planned(step, because)))
}

fn release(want: &Intent, addresses: Vec<IpAddr>, because: &str) -> Option<Planned<AddressStep>> {
    let needed = !addresses.is_empty();
    let step = AddressStep::Release {
        uid: want.uid.clone(),
        addresses,
    };
    needed.then(|| planned(step, because.to_owned()))
}

fn planned(step: AddressStep, because: String) -> Planned<AddressStep> {
    Planned {
        step,
        because,
        members_only: false,
        claims: false,
    }
}

fn converted<S: From<AddressStep>>(planned: Planned<AddressStep>) -> Planned<S> {
    Planned {
        step: S::from(planned.step),
        because: planned.because,
        members_only: planned.members_only,
        claims: planned.claims,
    }
}
