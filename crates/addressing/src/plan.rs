//! Planning of claims: pure.

use std::net::IpAddr;
use std::sync::Arc;

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
    let change = &have.change;
    if change.is_empty() {
        return match have.answer.as_ref().map(|answer| &answer.outcome) {
            // A refused change keeps what is held and in use. What was given up is cleared away
            // first.
            Some(Err(refusal)) if have.held.is_empty() && !in_use && have.is_cleared() => {
                Err(vec![refusal_reason(want, refusal)])
            }
            _ => record(have.held.clone()),
        };
    }
    let because = change.because.clone();
    let addresses = have.addresses.clone();
    let step = match change.claims.first() {
        Some((_, proposal)) => {
            let pool = proposal.pool.as_ref();
            AddressStep::Claim {
                uid: uid.clone(),
                pool: pool.map(ToString::to_string).unwrap_or_default(),
                publish: publish(&addresses),
                addresses: addresses.clone(),
                grant: Arc::new(change.clone()),
            }
        }
        None if addresses.is_empty() => AddressStep::Withdraw {
            uid: uid.clone(),
            addresses: have.held.clone(),
        },
        None => AddressStep::Reduce {
            uid: uid.clone(),
            publish: publish(&addresses),
            addresses: addresses.clone(),
            parts: change.ends.clone(),
        },
    };
    let claims = matches!(step, AddressStep::Claim { .. });
    let step = Planned {
        claims,
        ..planned(step, because)
    };
    Ok((addresses, Some(step)))
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
