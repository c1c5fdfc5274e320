//! The examples are what they promise to be.

use std::path::{Path, PathBuf};

use landfall_model::reason::Severity;
use landfall_model::status::ConditionType;
use landfall_model::view::InstanceView;

use crate::lab::Lab;
use crate::view::met;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(examples()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_passes_its_check_alone_and_together() {
    let lab = Lab::new();
    for file in files() {
        let ended = lab.landfall(&["check", "-f"], &[&file]).await;
        assert_eq!(ended.code(), Some(0), "{}", ended.stdout);
        let summary = ended.stdout.lines().last().unwrap();
        assert!(summary.contains(": 0 errors, "), "{summary}");
        // What has no meaning on one machine is said, and only there.
        let speaks = !summary.ends_with("0 warnings");
        assert_eq!(speaks, file.ends_with("openstack.yaml"), "{}", ended.stdout);
    }
    let ended = lab.landfall(&["check", "-f"], &[&examples()]).await;
    assert_eq!(ended.code(), Some(0), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_gets_an_address() {
    // The folder itself is served, as its README says, from a pool of the test's own: the addresses
    // that the examples name are in their own pool.
    let lab = Lab::new();
    for file in files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let own = lab.ranges.spare(0).to_string();
        let own = own.trim_end_matches('0');
        lab.write(name, &text.replace("127.78.0.", own));
    }
    let lab = lab.started().await;
    let view = lab
        .wait("every Service has an address", |view: &InstanceView| {
            let addressed = |it| met(it, ConditionType::Addressed);
            let all = view.ready && view.services.iter().all(addressed);
            (all && view.services.len() >= 9).then(|| view.clone())
        })
        .await;
    assert_eq!(view.problems, []);
    for service in &view.services {
        assert!(met(service, ConditionType::Accepted), "{}", service.key);
        let errors = service
            .reasons
            .iter()
            .filter(|it| it.severity == Severity::Error);
        assert_eq!(errors.count(), 0, "{}: {:?}", service.key, service.reasons);
        for listener in &service.listeners {
            assert_eq!(listener.problem, None, "{} {}", service.key, listener.key);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_of_the_examples_names_them_all() {
    let readme = std::fs::read_to_string(examples().join("README.md")).unwrap();
    for file in files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "{name} is not in the table"
        );
    }
}
