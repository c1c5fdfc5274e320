use landfall_model::dialect::DIALECTS;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::slice;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn keys() -> Vec<String> {
    let rows = DIALECTS.iter().flat_map(|dialect| {
        dialect
            .rows
            .iter()
            .map(|row| (format!("{}{}", dialect.prefix, row.name), row.example))
    });
    rows.flat_map(|(key, _)| {
        ["", ".web", ".dns", ".80", ".absent"].map(|port| format!("{key}{port}"))
    })
    .collect()
}

fn values() -> Vec<String> {
    let rows = DIALECTS.iter().flat_map(|dialect| dialect.rows);
    rows.map(|row| row.example.to_owned()).collect()
}

/// Texts from nearly right to nonsense.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(values()),
        2 => (select(values()), select(values())).prop_map(|(a, b)| format!("{a},{b}")),
        2 => (select(values()), any::<prop::sample::Index>(), any::<char>()).prop_map(
            |(text, index, letter)| {
                let mut letters: Vec<char> = text.chars().collect();
                let at = index.index(letters.len());
                letters[at] = letter;
                letters.into_iter().collect()
            }
        ),
        1 => "[-0-9a-z.:/,= %\\[\\]]{0,24}",
        1 => any::<String>(),
    ]
}

fn annotations() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof![
        8 => select(keys()),
        1 => "landfall\\.dev/[a-z.-]{0,12}",
        1 => any::<String>(),
    ];
    prop::collection::vec((key, text()), 0..12)
}

fn service() -> impl Strategy<Value = ServiceBuilder> {
    let spec = (
        prop::option::of(text()),
        prop::collection::vec(text(), 0..3),
        any::<bool>(),
        any::<bool>(),
        select(vec![
            FamilyPolicy::SingleStack,
            FamilyPolicy::PreferDualStack,
            FamilyPolicy::RequireDualStack,
        ]),
        select(vec![vec![Family::V4], vec![Family::V6, Family::V4]]),
    );
    (annotations(), spec).prop_map(
        |(annotations, (address, ranges, local, unnamed, policy, families))| {
            let service = if unnamed {
                svc("web").port(80)
            } else {
                svc("web").named_port("web", 80).udp_port("dns", 53)
            };
            let service = service.families(&families, policy).with(|row| {
                row.load_balancer_ip = address;
                row.source_ranges = ranges;
                row.external_local = local;
            });
            annotations
                .into_iter()
                .fold(service, |service, (key, value)| {
                    service.annotated(&key, &value)
                })
        },
    )
}

fn some_world() -> World {
    slices([
        slice("web")
            .named("a")
            .port("web", 8080)
            .pod("web-0", "10.0.0.1")
            .draining("10.0.0.2"),
        slice("web")
            .named("b")
            .port("", 8080)
            .ready("10.0.0.3")
            .not_ready("10.0.0.4"),
    ])
}

proptest! {
    #[test]
    fn whatever_stands_in_annotations_the_answer_is_sound(service in service()) {
        let world = some_world();
        let row = service.row();
        let outcome = resolve(&row, &world, &ProviderProfile::default());
        prop_assert_eq!(&outcome, &resolve(&row, &world, &ProviderProfile::default()));
        let reasons = match &outcome {
            Ok(intent) => {
                let spec = intent.load_balancer.as_ref().unwrap();
                let keys: Vec<_> = spec.listeners.iter().map(|listener| listener.key).collect();
                prop_assert_eq!(keys.len(), row.ports.len());
                prop_assert!(keys.is_sorted());
                for listener in &spec.listeners {
                    prop_assert!(listener.pool.members.is_sorted_by_key(|member| member.address));
                    prop_assert!(listener.pool.members.iter().all(|member| member.weight <= 256));
                    if let Some(monitor) = &listener.pool.monitor {
                        prop_assert!(monitor.timeout <= monitor.delay);
                    }
                    let encrypted = listener.mode.certificates();
                    prop_assert!(encrypted.is_none_or(|certificates| !certificates.0.is_empty()));
                }
                prop_assert!(!spec.address.families.is_empty());
                prop_assert!(intent.remarks.iter().all(|reason| reason.severity < Severity::Error));
                &intent.remarks
            }
            Err(reasons) => {
                prop_assert_eq!(reasons[0].severity, Severity::Error);
                reasons
            }
        };
        for reason in reasons {
            prop_assert!(!reason.message.is_empty() && !reason.message.ends_with('.'));
            let silent = reason.severity > Severity::Info && reason.remedy.is_empty();
            prop_assert!(!silent, "no remedy: {}", reason);
        }
    }
}
