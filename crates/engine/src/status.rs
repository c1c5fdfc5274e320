//! From what is known of a Service to the status that is reported: pure.

use jiff::Timestamp;
use landfall_model::limits;
use landfall_model::provider::ProviderStatus;
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::status::{Condition, ConditionType, IngressAddress, ServiceStatus};

/// What a status is made of.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Why the spec is not valid; empty: it is.
    pub errors: &'a [Reason],
    /// What there is to say of what is valid.
    pub remarks: &'a [Reason],
    /// Why the provider does not carry the spec out, from planning or from a failed step.
    pub refused: &'a [Reason],
    /// Whether no version of the Service is known that was ever accepted: then nothing is served.
    pub unserved: bool,
    /// What the provider says of the Service.
    pub standing: &'a ProviderStatus,
    /// The status before.
    pub before: &'a ServiceStatus,
    /// `metadata.generation` of the Service, where it has one.
    pub generation: Option<i64>,
    /// The time of changes made now.
    pub now: Timestamp,
}

/// The status of a Service that wants a load balancer. Equal facts give a status equal to the one
/// before, so that nothing is written.
pub fn compose(facts: &Facts<'_>) -> ServiceStatus {
    let now = facts.now;
    // A spec that is valid in itself and can't be had, while something earlier goes on, is as much
    // refused as an invalid one.
    let unheeded = facts
        .standing
        .remarks
        .iter()
        .filter(|remark| remark.severity == Severity::Error);
    let errors: Vec<Reason> = facts.errors.iter().chain(unheeded).cloned().collect();
    let accepted = match errors.as_slice() {
        [] => accepted(facts),
        errors => unmet(ConditionType::Accepted, errors, now),
    };
    let waiting: Vec<Reason> = facts
        .refused
        .iter()
        .chain(&facts.standing.waiting)
        .chain(facts.errors)
        .cloned()
        .collect();
    let ingress = facts.standing.ingress.clone();
    let addressed = if ingress.is_empty() {
        unmet_or_progressing(ConditionType::Addressed, &waiting, now)
    } else {
        let message = format!("clients connect to {}", addresses(&ingress));
        Condition::met(ConditionType::Addressed, Code::Assigned, &message, now)
    };
    let invalid = if facts.unserved { facts.errors } else { &[] };
    let not_served = [facts.refused, &facts.standing.waiting, invalid].concat();
    let programmed = if ingress.is_empty() {
        unmet_or_progressing(ConditionType::Programmed, &waiting, now)
    } else if not_served.is_empty() {
        Condition::met(ConditionType::Programmed, Code::Ready, "traffic flows", now)
    } else {
        unmet(ConditionType::Programmed, &not_served, now)
    };
    let mut conditions = vec![accepted, addressed, programmed];
    for condition in &mut conditions {
        condition.observed_generation = facts.generation;
    }
    ServiceStatus {
        ingress,
        conditions,
        marks: facts.standing.marks.clone(),
    }
    .continuing(facts.before)
}

/// The condition of a valid Service. What its provider does without, and endpoints without room,
/// are no error, and nothing that should be found only by an explicit search.
fn accepted(facts: &Facts<'_>) -> Condition {
    let is_left_out = |remark: &&Reason| match remark.code {
        Code::OptionNotSupported => remark.severity == Severity::Warning,
        // Other remarks of this code count members, and would be written with each of them.
        Code::LimitReached => remark.message == limits::endpoints_left_out().message,
        _ => false,
    };
    let mut left_out = facts.remarks.iter().filter(is_left_out);
    let (code, message) = match left_out.next() {
        None => (
            Code::Accepted,
            "every field and annotation is valid".to_owned(),
        ),
        Some(first) => {
            let more = match left_out.count() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            (first.code, format!("{first}{more}"))
        }
    };
    Condition::met(ConditionType::Accepted, code, &message, facts.now)
}

/// Addresses or names, as people list them.
pub fn addresses(ingress: &[IngressAddress]) -> String {
    let names = ingress.iter().filter_map(|entry| {
        entry
            .hostname
            .clone()
            .or_else(|| entry.ip.map(|address| address.to_string()))
    });
    names.collect::<Vec<_>>().join(", ")
}

fn unmet_or_progressing(kind: ConditionType, why: &[Reason], now: Timestamp) -> Condition {
    if why.is_empty() {
        let reason = Reason::info(Code::Progressing, "the load balancer is being created");
        Condition::unmet(kind, &reason, now)
    } else {
        unmet(kind, why, now)
    }
}

/// The worst reason speaks; the others are counted, and listed in full elsewhere.
fn unmet(kind: ConditionType, why: &[Reason], now: Timestamp) -> Condition {
    let Some(worst) = why.iter().rev().max_by_key(|reason| reason.severity) else {
        return unmet_or_progressing(kind, why, now);
    };
    let mut condition = Condition::unmet(kind, worst, now);
    if why.len() > 1 {
        condition.message = format!("{} (and {} more)", condition.message, why.len() - 1);
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compose_with(
        errors: &[Reason],
        refused: &[Reason],
        standing: &ProviderStatus,
    ) -> ServiceStatus {
        compose(&Facts {
            errors,
            remarks: &[],
            refused,
            unserved: false,
            standing,
            before: &ServiceStatus::default(),
            generation: None,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn addressed(waiting: Vec<Reason>) -> ProviderStatus {
        let ip = Some("127.77.0.1".parse().unwrap());
        ProviderStatus {
            ingress: vec![IngressAddress {
                ip,
                ..IngressAddress::default()
            }],
            waiting,
            ..ProviderStatus::default()
        }
    }

    fn truths(status: &ServiceStatus) -> Vec<(bool, Code)> {
        status
            .conditions
            .iter()
            .map(|condition| (condition.status, condition.reason))
            .collect()
    }

    #[test]
    fn a_service_that_serves_meets_every_condition() {
        let status = compose_with(&[], &[], &addressed(vec![]));
        assert_eq!(
            truths(&status),
            [
                (true, Code::Accepted),
                (true, Code::Assigned),
                (true, Code::Ready)
            ]
        );
    }

    #[test]
    fn an_invalid_change_is_not_accepted_while_the_previous_version_goes_on_serving() {
        let error = Reason::error(Code::InvalidAnnotation, "no");
        let status = compose_with(&[error], &[], &addressed(vec![]));
        assert_eq!(
            truths(&status),
            [
                (false, Code::InvalidAnnotation),
                (true, Code::Assigned),
                (true, Code::Ready)
            ]
        );
    }

    #[test]
    fn where_nothing_was_ever_accepted_no_traffic_flows_whatever_is_published() {
        let error = Reason::error(Code::InvalidAnnotation, "no");
        let status = compose(&Facts {
            errors: &[error],
            remarks: &[],
            refused: &[],
            unserved: true,
            standing: &addressed(vec![]),
            before: &ServiceStatus::default(),
            generation: None,
            now: Timestamp::UNIX_EPOCH,
        });
        assert_eq!(
            truths(&status),
            [
                (false, Code::InvalidAnnotation),
                (true, Code::Assigned),
                (false, Code::InvalidAnnotation)
            ]
        );
    }

    #[test]
    fn what_the_provider_does_without_stands_in_the_condition_of_what_is_accepted() {
        let left_out = Reason::warning(Code::OptionNotSupported, "the test does without: no");
        let other = Reason::warning(Code::NoReadyEndpoints, "none of the endpoints can serve");
        let emulated = Reason::info(Code::OptionNotSupported, "in another way");
        let accepted = |remarks: &[Reason]| {
            let status = compose(&Facts {
                errors: &[],
                remarks,
                refused: &[],
                unserved: false,
                standing: &addressed(vec![]),
                before: &ServiceStatus::default(),
                generation: None,
                now: Timestamp::UNIX_EPOCH,
            });
            let condition = status.condition(ConditionType::Accepted).unwrap();
            (
                condition.status,
                condition.reason,
                condition.message.clone(),
            )
        };
        let fine = "every field and annotation is valid".to_owned();
        let usual = accepted(&[other.clone(), emulated]);
        assert_eq!(usual, (true, Code::Accepted, fine));
        let counted = Reason::warning(Code::LimitReached, "of 5 members 1 is left out");
        let endpoints = limits::endpoints_left_out();
        let few = accepted(&[counted, endpoints.clone()]);
        assert_eq!(few, (true, Code::LimitReached, endpoints.to_string()));
        let message = "the test does without: no (and 1 more)".to_owned();
        let without = accepted(&[other, left_out.clone(), left_out]);
        assert_eq!(without, (true, Code::OptionNotSupported, message));
    }

    #[test]
    fn a_refused_address_explains_both_missing_conditions() {
        let refused = Reason::error(Code::PoolExhausted, "all taken");
        let status = compose_with(&[], &[refused], &ProviderStatus::default());
        assert_eq!(
            truths(&status),
            [
                (true, Code::Accepted),
                (false, Code::PoolExhausted),
                (false, Code::PoolExhausted)
            ]
        );
    }

    #[test]
    fn without_healthy_members_it_has_an_address_and_no_traffic() {
        let down = Reason::warning(Code::NoHealthyMembers, "all down");
        let status = compose_with(&[], &[], &addressed(vec![down]));
        assert_eq!(
            truths(&status),
            [
                (true, Code::Accepted),
                (true, Code::Assigned),
                (false, Code::NoHealthyMembers)
            ]
        );
    }

    #[test]
    fn a_change_of_address_that_is_refused_shows_while_the_held_address_stays() {
        let mut standing = addressed(vec![]);
        standing
            .remarks
            .push(Reason::error(Code::AddressInUse, "held by shop/web"));
        let status = compose_with(&[], &[], &standing);
        assert_eq!(
            truths(&status),
            [
                (false, Code::AddressInUse),
                (true, Code::Assigned),
                (true, Code::Ready)
            ]
        );
    }

    #[test]
    fn composing_again_later_changes_nothing() {
        let first = compose_with(&[], &[], &addressed(vec![]));
        let again = compose(&Facts {
            errors: &[],
            remarks: &[],
            refused: &[],
            unserved: false,
            standing: &addressed(vec![]),
            before: &first,
            generation: None,
            now: Timestamp::from_second(99).unwrap(),
        });
        assert_eq!(again, first);
    }
}
