use landfall_model::Severity;

use super::*;
use crate::sharing::{BackendKey, SharingKey};
use crate::testing::{ip, ips, name, svc, tcp};

fn one_of_each() -> Vec<Refusal> {
    let address = ip("10.0.0.1");
    let holder = || ServiceKey::new("shop", "web");
    let pool = || name("front");
    let key = || SharingKey::new("k").unwrap();
    let skipped = || {
        vec![SkippedPool {
            pool: pool(),
            verdict: Verdict::Full(Family::V4),
        }]
    };
    vec![
        Refusal::NoPools,
        Refusal::UnknownPool {
            pool: pool(),
            known: vec![name("a"), name("b")],
        },
        Refusal::AddressNotInPool {
            address,
            known: vec![pool()],
        },
        Refusal::AddressInOtherPool {
            address,
            pool: pool(),
            requested: name("b"),
        },
        Refusal::AddressesInTwoPools {
            first: address,
            first_pool: pool(),
            second: ip("fd00::1"),
            second_pool: name("b"),
        },
        Refusal::PoolNotForNamespace {
            pool: pool(),
            namespace: "shop".into(),
        },
        Refusal::PoolNotForLabels {
            pool: pool(),
            service: holder(),
        },
        Refusal::AddressAvoided {
            address,
            pool: pool(),
        },
        Refusal::Conflict(Conflict::AddressTaken {
            address,
            holder: holder(),
        }),
        Refusal::Conflict(Conflict::AddressOfOthers { address }),
        Refusal::Conflict(Conflict::SharingWithOthersClashes { address }),
        Refusal::Conflict(Conflict::SharingKeyDiffers {
            address,
            holder: holder(),
            holder_key: None,
            key: key(),
        }),
        Refusal::Conflict(Conflict::SharingBackendDiffers {
            address,
            holder: holder(),
            holder_backend: BackendKey::Cluster,
            backend: svc("x").local("app=web").claimant.terms.backend.clone(),
        }),
        Refusal::Conflict(Conflict::SharingNeedsSelector {
            address,
            holder: holder(),
        }),
        Refusal::Conflict(Conflict::SharingPortsClash {
            address,
            holder: holder(),
            ports: tcp(&[80, 443]).into_iter().collect(),
        }),
        Refusal::PoolFull {
            pool: pool(),
            family: Family::V4,
        },
        Refusal::PoolLacksFamily {
            pool: pool(),
            family: Family::V6,
        },
        Refusal::NoPoolForService {
            service: holder(),
            skipped: skipped(),
        },
        Refusal::PoolsExhausted {
            families: WantedFamilies::RequireDual,
            skipped: skipped(),
        },
        Refusal::TooManyAddresses {
            addresses: vec![address; 3],
        },
        Refusal::TwoOfOneFamily {
            family: Family::V4,
            first: address,
            second: ip("10.0.0.2"),
        },
        Refusal::BadAddress {
            key: "k".into(),
            text: "x".into(),
        },
        Refusal::AddressesSetTwice {
            key: "k".into(),
            other: "l".into(),
        },
        Refusal::FamiliesMismatch {
            addresses: ips("10.0.0.1"),
            families: WantedFamilies::RequireDual,
        },
        Refusal::NotEnoughClusterIps {
            present: Family::V6,
        },
        Refusal::NoClusterIp,
    ]
}

#[test]
fn every_refusal_is_a_reason_with_a_sentence_and_a_remedy() {
    for refusal in one_of_each() {
        let reason = refusal.reason();
        assert_eq!(reason.code, refusal.code());
        assert_eq!(reason.severity, Severity::Error);
        assert_eq!(reason.message, refusal.to_string());
        assert!(!reason.message.ends_with('.'), "{}", reason.message);
        assert!(
            !reason.message.starts_with(char::is_uppercase),
            "{}",
            reason.message
        );
        assert!(!reason.remedy.is_empty(), "{refusal:?}");
        assert!(!reason.remedy.ends_with('.'), "{}", reason.remedy);
    }
}

#[test]
fn the_conflicting_service_is_named_unless_it_is_of_another_namespace() {
    for refusal in one_of_each() {
        let in_the_way = matches!(
            refusal.code(),
            Code::AddressInUse | Code::AddressNotShareable
        );
        let text = refusal.to_string();
        let named = text.contains("held by shop/web");
        let others = text.contains("held by a Service of another namespace");
        assert_eq!(in_the_way, named || others, "{text}");
    }
}

#[test]
fn ports_that_clash_are_listed() {
    let clash = one_of_each()
        .into_iter()
        .find(|r| matches!(r, Refusal::Conflict(Conflict::SharingPortsClash { .. })));
    assert_eq!(
        clash.unwrap().to_string(),
        "10.0.0.1 is held by shop/web with the same sharing key, and both use 80/TCP, 443/TCP"
    );
}

#[test]
fn differing_members_are_both_reported() {
    let differs = one_of_each()
        .into_iter()
        .find(|r| matches!(r, Refusal::Conflict(Conflict::SharingBackendDiffers { .. })));
    assert_eq!(
        differs.unwrap().to_string(),
        "10.0.0.1 is held by shop/web with the same sharing key, whose traffic policy is Cluster \
         while here it is Local with selector app=web"
    );
}

#[test]
fn pools_of_the_wrong_family_alone_are_distinguished_from_full_ones() {
    let exhausted = |verdict| Refusal::PoolsExhausted {
        families: WantedFamilies::RequireDual,
        skipped: vec![SkippedPool {
            pool: name("a"),
            verdict,
        }],
    };
    assert_eq!(
        exhausted(Verdict::Full(Family::V4)).code(),
        Code::PoolExhausted
    );
    assert_eq!(
        exhausted(Verdict::LacksFamily(Family::V4)).code(),
        Code::NoAddressOfFamily
    );
}

#[test]
fn a_refusal_is_small_enough_to_be_returned_by_value() {
    assert!(size_of::<Refusal>() <= 128, "{}", size_of::<Refusal>());
}
