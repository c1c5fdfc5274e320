//! The layering of ARCHITECTURE.md: a crate uses only crates below it.

use super::{Findings, Metadata, Package};

/// The providers, beside those that say so: `keywords = ["provider"]` in their manifest.
const PROVIDERS: &[&str] = &["landfall-openstack", "landfall-local"];

/// The crates, from the top. Crates of one layer do not use each other.
const FLOORS: &[&[&str]] = &[
    &["landfall"],
    &["landfall-web"],
    &["landfall-kube", "landfall-files", "landfall-speaker"],
    &["landfall-engine"],
    PROVIDERS,
    &["landfall-addressing", "landfall-metallb"],
    &[
        "landfall-l2",
        "landfall-bgp",
        "landfall-bfd",
        "landfall-membership",
        "landfall-proxy",
        "landfall-ipam",
        "landfall-rest",
    ],
    &["landfall-config", "landfall-sys"],
    &["landfall-model"],
];

/// Only for tests, and for tests of every floor. It may use what all crates use.
const TESTKIT: &str = "landfall-testkit";
const TESTKIT_USES: &[&str] = &["landfall-model", "landfall-config", "landfall-sys"];

/// Crates that may see a Kubernetes client, and crates that are one.
const SEE_KUBERNETES: &[&str] = &["landfall-kube", TESTKIT, "landfall"];
const KUBERNETES: &[&str] = &[
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "k8s-openapi",
];

/// Crates with tests over many reconciles, which the engine makes, beside the providers.
const DRIVEN_BY_ENGINE: &[&str] = &["landfall-addressing", "landfall-rest"];

/// What a crate must not use although it stands below, and why.
const APART: &[(&str, &[&str], &str)] = &[
    (
        "landfall-engine",
        PROVIDERS,
        "the engine knows only the Provider trait",
    ),
    (
        "landfall-engine",
        &[
            "landfall-proxy",
            "landfall-ipam",
            "landfall-addressing",
            "landfall-rest",
            "landfall-l2",
            "landfall-bgp",
            "landfall-bfd",
            "landfall-membership",
            "landfall-sys",
        ],
        "the engine does no I/O of its own",
    ),
];

/// What `model` must stay free of: I/O, runtimes, clocks.
const NOT_IN_MODEL: &[&str] = &[
    "tokio",
    "tokio-util",
    "futures-util",
    "socket2",
    "libc",
    "rustix",
    "mio",
    "hyper",
    "notify",
];

/// Validates every crate of the workspace.
pub fn validate(metadata: &Metadata) -> Findings {
    let mut findings = Findings::default();
    let ours = metadata.ours();
    let providers = ours.filter(|package| package.keywords.iter().any(|it| it == "provider"));
    let providers: Vec<&str> = providers.map(|package| package.name.as_str()).collect();
    for package in metadata.ours() {
        validate_package(package, &providers, &mut findings.errors);
    }
    findings
}

fn validate_package(package: &Package, providers: &[&str], errors: &mut Vec<String>) {
    let floor = |name: &str| {
        let is_provider = providers.contains(&name);
        let on = |floor: &&[&str]| floor.contains(&name) || is_provider && *floor == PROVIDERS;
        FLOORS.iter().position(on)
    };
    let room = package.name.as_str();
    let place = floor(room);
    let is_provider = providers.contains(&room) || PROVIDERS.contains(&room);
    let is_driven = is_provider || DRIVEN_BY_ENGINE.contains(&room);
    if place.is_none() && ![TESTKIT, "xtask"].contains(&room) {
        errors.push(format!(
            "{room} has no floor: add it to ARCHITECTURE.md and to FLOORS in \
            xtask/src/check/layers.rs (a provider: `keywords = [\"provider\"]` in its manifest)"
        ));
        return;
    }
    for dependency in &package.dependencies {
        let used = dependency.name.as_str();
        let mut refuse = |why: &str| errors.push(format!("{room} uses {used}: {why}"));
        let dev = dependency.kind.as_deref() == Some("dev");
        if KUBERNETES.contains(&used) && !SEE_KUBERNETES.contains(&room) {
            refuse("only landfall-kube, landfall-testkit and the binary see a Kubernetes client");
        }
        if room == "landfall-model" && !dev && NOT_IN_MODEL.contains(&used) {
            refuse("the model has no I/O, no runtime and no clock");
        }
        if dependency.path.is_none() {
            continue;
        }
        if used == TESTKIT {
            // Benchmarks need a real API server, too, and xtask is never shipped.
            if !dev && room != "xtask" {
                refuse("it is for tests: move it to [dev-dependencies]");
            }
            continue;
        }
        match (place, floor(used)) {
            _ if room == TESTKIT && !TESTKIT_USES.contains(&used) => {
                refuse("tests of that crate use the test kit, so the test kit can't use it");
            }
            // What a provider does over many passes shows only with the engine that makes them.
            _ if dev && is_driven && used == "landfall-engine" => {}
            (Some(above), Some(below)) if below <= above => {
                refuse("a crate uses only crates below it (ARCHITECTURE.md)");
            }
            (Some(_), None) => refuse("it isn't a crate of this workspace"),
            _ => {}
        }
        for (_, apart, why) in APART.iter().filter(|(name, ..)| *name == room) {
            let is_provider = *apart == PROVIDERS && providers.contains(&used);
            if (apart.contains(&used) || is_provider) && !dev {
                refuse(why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Dependency;
    use super::*;

    fn errors(room: &str, used: &str, kind: Option<&str>) -> Vec<String> {
        let ours = used.starts_with("landfall");
        let package = Package {
            id: room.into(),
            name: room.into(),
            license: None,
            keywords: Vec::new(),
            dependencies: vec![Dependency {
                name: used.into(),
                kind: kind.map(str::to_owned),
                path: ours.then(|| format!("crates/{used}")),
            }],
        };
        let mut errors = Vec::new();
        validate_package(&package, &["landfall-toy"], &mut errors);
        errors
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_crate_may_use_what_stands_below_it() {
        assert_eq!(errors("landfall", "landfall-web", None), NONE);
        assert_eq!(errors("landfall-local", "landfall-proxy", None), NONE);
        assert_eq!(errors("landfall-proxy", "tokio", None), NONE);
    }

    #[test]
    fn a_crate_may_not_use_what_stands_beside_or_above_it() {
        let why = "a crate uses only crates below it (ARCHITECTURE.md)";
        assert_eq!(
            errors("landfall-proxy", "landfall-ipam", None),
            [format!("landfall-proxy uses landfall-ipam: {why}")]
        );
        assert_eq!(
            errors("landfall-model", "landfall-engine", Some("dev")),
            [format!("landfall-model uses landfall-engine: {why}")]
        );
    }

    #[test]
    fn only_tests_of_the_provider_of_a_cloud_drive_it_by_the_engine() {
        let used = |kind| errors("landfall-openstack", "landfall-engine", kind);
        assert_eq!(used(Some("dev")), NONE);
        assert_eq!(used(None).len(), 1);
    }

    #[test]
    fn the_test_kit_is_for_tests() {
        assert_eq!(
            errors("landfall-web", "landfall-testkit", Some("dev")),
            NONE
        );
        assert_eq!(
            errors("landfall-web", "landfall-testkit", None),
            ["landfall-web uses landfall-testkit: it is for tests: move it to [dev-dependencies]"]
        );
        assert_eq!(errors("landfall-testkit", "landfall-model", None), NONE);
        assert_eq!(errors("landfall-testkit", "landfall-engine", None).len(), 1);
    }

    #[test]
    fn the_engine_knows_no_provider_and_the_model_no_runtime() {
        assert_eq!(
            errors("landfall-engine", "landfall-local", None),
            ["landfall-engine uses landfall-local: the engine knows only the Provider trait"]
        );
        assert_eq!(
            errors("landfall-model", "tokio", None),
            ["landfall-model uses tokio: the model has no I/O, no runtime and no clock"]
        );
        assert_eq!(errors("landfall-files", "k8s-openapi", None).len(), 1);
    }

    #[test]
    fn a_provider_has_its_place_by_the_keyword_in_its_manifest() {
        assert_eq!(errors("landfall-toy", "landfall-rest", None), NONE);
        assert_eq!(errors("landfall", "landfall-toy", None), NONE);
        assert_eq!(errors("landfall-toy", "landfall-local", None).len(), 1);
        assert!(!errors("landfall-engine", "landfall-toy", None).is_empty());
    }

    #[test]
    fn a_new_crate_must_be_given_a_place() {
        let errors = errors("landfall-new", "landfall-model", None);
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("landfall-new has no floor"),
            "{errors:?}"
        );
    }
}
