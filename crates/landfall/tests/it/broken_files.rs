//! Files that can't be read, or not quite: what they held before goes on being served.

use landfall_model::reason::{Code, Severity};
use landfall_model::view::{InstanceView, ServiceView};

use crate::client;
use crate::lab::Lab;
use crate::manifest::{line_of, pool, svc};
use crate::view::at;
use crate::witness::{Scene, origin};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_yaml_spoils_its_own_document_and_nothing_else() {
    let scene = Scene::set().await;
    let good = scene.web().yaml();
    scene.lab.write("web.yaml", &good);
    let target = scene.healed().await;

    let broken = good.replace("  ports:", "  ports: [");
    scene.lab.write("web.yaml", &broken);
    let problem = scene.lab.problem(Code::InvalidManifest).await;
    assert_eq!(problem.severity, Severity::Error);
    let place = problem.origin.clone().expect("it names file and line");
    assert_eq!(*place.file, *scene.lab.file("web.yaml").to_str().unwrap());
    assert!(place.line >= line_of(&broken, "ports: ["), "{problem}");
    let kept = scene.lab.problem(Code::ServingPreviousVersion).await;
    assert!(kept.message.contains("default/web"), "{kept}");
    assert_eq!(client::member(target).await.unwrap(), "pod");
    scene.witness_serves().await;
    let ended = scene.check().await;
    assert_eq!(ended.code(), Some(1));
    let expected = format!("error InvalidManifest: {problem}\n");
    assert!(ended.stdout.contains(&expected), "{}", ended.stdout);

    // A second document in the same file is not the broken one's hostage.
    let second = svc("second")
        .tcp(8080)
        .members(&[scene.backend.address])
        .yaml();
    scene
        .lab
        .write("web.yaml", &format!("{second}---\n{broken}"));
    let second = scene.lab.ready("default/second").await;
    assert_eq!(client::member(at(&second, 8080)).await.unwrap(), "pod");
    assert_eq!(client::member(target).await.unwrap(), "pod");

    scene.lab.write("web.yaml", &good);
    assert_eq!(scene.healed().await, target);
    let repaired = |view: &InstanceView| view.problems.is_empty().then_some(());
    scene.lab.wait("nothing is wrong any more", repaired).await;
    scene.lab.gone("default/second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_of_the_wrong_type_is_named_by_its_path() {
    let scene = Scene::set().await;
    let text = scene.web().yaml().replace("{port: 8080}", "{port: eighty}");
    scene.lab.write("web.yaml", &text);
    let problem = scene.lab.problem(Code::InvalidManifest).await;
    assert_eq!(problem.field.as_deref(), Some("spec.ports[0].port"));
    assert_eq!(problem.value.as_deref(), Some("eighty"));
    let line = line_of(&text, "eighty");
    assert_eq!(problem.origin, Some(origin(&scene.lab, "web.yaml", line)));
    scene.witness_serves().await;
    scene.lab.write("web.yaml", &scene.web().yaml());
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_written_wrongly_stays_as_it_was() {
    let lab = Lab::new();
    let range = |last: u8| format!("{}-{}", lab.ranges.pool(1), lab.ranges.pool(last));
    let good = pool("edge", &[range(20)], &[]);
    lab.write("pool.yaml", &good);
    let backwards = format!("{}-{}", lab.ranges.pool(20), lab.ranges.pool(1));
    let scene = Scene::of(lab.options(&[])).await;
    let bad = pool("edge", std::slice::from_ref(&backwards), &[]);
    scene.lab.write("pool.yaml", &bad);
    let problem = scene.lab.problem(Code::InvalidPool).await;
    assert!(problem.message.contains(&backwards), "{problem}");
    assert!(!problem.remedy.is_empty(), "{problem}");
    let place = problem.origin.clone().expect("it names file and line");
    assert_eq!(*place.file, *scene.lab.file("pool.yaml").to_str().unwrap());
    scene.witness_serves().await;
    // New Services get addresses of the pool as it was.
    scene.lab.write("web.yaml", &scene.web().yaml());
    let web = scene.lab.ready("default/web").await;
    assert_eq!(client::member(at(&web, 8080)).await.unwrap(), "pod");
    let checked = scene.check().await;
    assert_eq!(checked.code(), Some(1));
    assert!(
        checked.stdout.contains("error InvalidPool: "),
        "{}",
        checked.stdout
    );
    scene.lab.write("pool.yaml", &good);
    scene.healed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_stands_in_two_files_says_so_itself() {
    let scene = Scene::set().await;
    scene.lab.write("web.yaml", &scene.web().yaml());
    let target = scene.healed().await;
    scene.lab.write("zweb.yaml", &scene.web().yaml());
    let reported = |service: &ServiceView| {
        let mut reasons = service.reasons.iter();
        reasons.any(|reason| reason.code == Code::DuplicateObject)
    };
    let web = scene
        .lab
        .until("default/web", "reports its duplicate", reported)
        .await;
    assert_eq!(at(&web, 8080), target);
    for arguments in [
        &["explain", "default/web"][..],
        &["get", "services", "-o", "wide"],
    ] {
        let ended = scene.lab.landfall(arguments, &[]).await;
        assert!(ended.stdout.contains("DuplicateObject"), "{}", ended.stdout);
    }
    scene.lab.remove("zweb.yaml");
    assert_eq!(scene.healed().await, target);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_becomes_a_directory_withdraws_nothing() {
    let scene = Scene::set().await;
    let good = scene.web().yaml();
    scene.lab.write("web.yaml", &good);
    let target = scene.healed().await;
    scene.lab.remove("web.yaml");
    std::fs::create_dir(scene.lab.file("web.yaml")).unwrap();
    let problem = scene.lab.problem(Code::InvalidManifest).await;
    assert!(problem.message.contains("it is a directory"), "{problem}");
    assert_eq!(client::member(target).await.unwrap(), "pod");
    scene.witness_serves().await;
    std::fs::remove_dir(scene.lab.file("web.yaml")).unwrap();
    scene.lab.write("web.yaml", &good);
    assert_eq!(scene.healed().await, target);
}
