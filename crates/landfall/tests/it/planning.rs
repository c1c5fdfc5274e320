//! `plan` and `check`: what would happen, and what is wrong, without anything happening.

use std::fs;

use landfall_model::reason::Code;
use serde_json::{Value, json};

use crate::backend::Backend;
use crate::client;
use crate::lab::Lab;
use crate::manifest::{Svc, line_of, svc};
use crate::view::{at, find};

/// An instance that serves `web`, and a second folder in which things differ.
struct Scene {
    lab: Lab,
    _backend: Backend,
}

// === impl Scene ===

impl Scene {
    async fn set() -> Self {
        let mut lab = Lab::new();
        let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
        fs::create_dir(lab.path("spec")).unwrap();
        let scene = Self {
            _backend: backend,
            lab: {
                lab.write("web.yaml", &Self::web(&lab).yaml());
                lab.start().await;
                lab
            },
        };
        // One after the other, so that each has the same address in every run.
        scene.lab.ready("default/web").await;
        let old = Self::old(&scene.lab);
        scene.lab.write("old.yaml", &old.yaml());
        scene.lab.ready("default/old").await;
        scene
    }

    fn web(lab: &Lab) -> Svc {
        svc("web").tcp(8080).members(&[lab.ranges.backend(1, 3001)])
    }

    fn old(lab: &Lab) -> Svc {
        svc("old").tcp(8080).members(&[lab.ranges.backend(1, 3001)])
    }

    /// A change of `web`, and a Service that is new.
    fn spec(&self) {
        let members = [
            self.lab.ranges.backend(1, 3001),
            self.lab.ranges.backend(2, 3001),
        ];
        let web = svc("web").tcp(8080).members(&members);
        let web = web.option("algorithm", "SOURCE_IP").yaml();
        fs::write(self.lab.path("spec/web.yaml"), web).unwrap();
        let new = svc("new").tcp(8080).members(&members).yaml();
        fs::write(self.lab.path("spec/new.yaml"), new).unwrap();
    }

    async fn plan(&self, more: &[&str]) -> String {
        let mut arguments = vec!["plan"];
        arguments.extend(more);
        arguments.push("-f");
        let ended = self
            .lab
            .landfall(&arguments, &[&self.lab.path("spec")])
            .await;
        self.lab.hide(&ended.good())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_on_a_running_instance_shows_what_would_change_and_changes_nothing() {
    let scene = Scene::set().await;
    scene.spec();
    let state = || fs::read_to_string(scene.lab.state().join("state.journal")).unwrap();
    let (before, view) = (state(), scene.lab.view().await);
    insta::assert_snapshot!("plan_on_an_instance", scene.plan(&[]).await);
    insta::assert_snapshot!("plan_with_prune", scene.plan(&["--prune"]).await);

    let plan: Value = serde_json::from_str(&scene.plan(&["-o", "json"]).await).unwrap();
    assert_eq!(plan["against"], "instance");
    assert_eq!(plan["problems"], json!([]));
    let plans = plan["plans"].as_array().unwrap();
    let of = |name: &str| {
        let plan = plans
            .iter()
            .find(|it| it["service"] == format!("default/{name}"));
        plan.unwrap()["steps"].as_array().unwrap().clone()
    };
    assert_eq!(of("new").len(), 2);
    assert_eq!(of("new")[0]["detail"]["kind"], "claim");
    assert_eq!(of("new")[1]["detail"]["kind"], "open");
    assert_eq!(of("web").len(), 1);
    assert_eq!(of("web")[0]["detail"]["kind"], "change");
    let count = of("web")[0]["detail"]["listener"]["pool"]["members"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(count, 2);

    let after = scene.lab.view().await;
    assert_eq!(state(), before);
    assert_eq!(after.services, view.services);
    assert_eq!(after.pools, view.pools);
    assert_eq!(after.problems, view.problems);

    // What was planned is what happens.
    let claim = of("new")[0]["detail"]["addresses"][0].clone();
    for name in ["web.yaml", "new.yaml"] {
        let text = fs::read_to_string(scene.lab.path("spec").join(name)).unwrap();
        scene.lab.write(name, &text);
    }
    let new = scene.lab.until("default/new", "has an address", |it| {
        !it.status.ingress.is_empty()
    });
    let new = new.await;
    let address = scene.lab.hide(&at(&new, 8080).ip().to_string());
    assert_eq!(json!(address), claim);
    scene.lab.settled().await;
    insta::assert_snapshot!("plan_of_what_is_served", scene.plan(&[]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_one_service_leaves_others_alone_unless_it_prunes() {
    let scene = Scene::set().await;
    fs::write(
        scene.lab.path("spec/web.yaml"),
        Scene::web(&scene.lab).yaml(),
    )
    .unwrap();
    let plan = scene.plan(&[]).await;
    assert_eq!(
        plan,
        "0 steps for 1 Service, 1 of them unchanged; planned against the running instance\n"
    );
    let plan = scene.plan(&["--prune"]).await;
    assert!(plan.contains("default/old\n  close "), "{plan}");
    assert!(plan.contains("  release "), "{plan}");
    assert!(!plan.contains("default/web"), "{plan}");
    // It was a plan and no more.
    let old = scene.lab.service("default/old").await;
    assert_eq!(client::member(at(&old, 8080)).await.unwrap(), "pod");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_shows_what_is_given_back_when_a_service_is_not_ours_any_more() {
    let scene = Scene::set().await;
    let path = scene.lab.path("spec/web.yaml");
    let text = Scene::web(&scene.lab).yaml();
    let class = |class: &str| {
        let line = format!("  type: LoadBalancer\n  loadBalancerClass: {class}");
        text.replace("  type: LoadBalancer", &line)
    };
    let inside = text.replace("type: LoadBalancer", "type: ClusterIP");
    for text in [
        inside,
        class("example.org/other"),
        class("landfall.dev/other"),
    ] {
        fs::write(&path, &text).unwrap();
        let ended = scene.lab.landfall(&["plan", "-f"], &[&path]).await;
        let unknown = text.contains("landfall.dev/other");
        assert_eq!(ended.code(), Some(i32::from(unknown)), "{}", ended.stdout);
        assert!(ended.stdout.contains("\n  close "), "{}", ended.stdout);
        assert!(ended.stdout.contains("\n  release "), "{}", ended.stdout);
        assert_eq!(
            ended.stdout.contains("landfall.dev/local"),
            unknown,
            "{}",
            ended.stdout
        );
    }
    let web = scene.lab.service("default/web").await;
    assert_eq!(client::member(at(&web, 8080)).await.unwrap(), "pod");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_instance_the_plan_is_made_from_nothing() {
    let lab = Lab::new();
    let text = svc("web").tcp(8080).members(&[lab.ranges.backend(1, 3001)]);
    lab.write("web.yaml", &text.option("monitor", "tcp").yaml());
    lab.write("later.yaml", &svc("later").tcp(8080).yaml());
    let pool = lab.ranges.pool_cidr();
    let ended = lab
        .landfall(&["plan", "--pool", &pool, "-f"], &[&lab.folder()])
        .await;
    insta::assert_snapshot!("plan_from_nothing", lab.hide(&ended.good()));

    // Without a pool of one's own: the default one.
    let ended = lab
        .landfall(&["plan", "-o", "json", "-f"], &[&lab.folder()])
        .await;
    let plan: Value = serde_json::from_str(&ended.good()).unwrap();
    assert_eq!(plan["against"], "nothing");
    let steps = &plan["plans"][1]["steps"];
    assert_eq!(steps[0]["detail"]["pool"], "default");
    assert!(
        steps[0]["step"]
            .as_str()
            .unwrap()
            .starts_with("claim 127.77.0.")
    );
    assert!(!lab.state().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_what_can_not_be_had_says_why_and_fails() {
    let scene = Scene::set().await;
    let text = Scene::web(&scene.lab).option("drain", "soon").yaml();
    let path = scene.lab.path("spec/web.yaml");
    fs::write(&path, &text).unwrap();
    fs::write(scene.lab.path("spec/a-first.yaml"), "# nothing\n").unwrap();
    let ended = scene
        .lab
        .landfall(&["plan", "-f"], &[&scene.lab.path("spec")])
        .await;
    assert_eq!(ended.code(), Some(1));
    let line = line_of(&text, "landfall.dev/drain");
    let place = format!("error: {}:{line}: metadata.annotations", path.display());
    assert!(ended.stdout.contains(&place), "{}", ended.stdout);
    let ended = scene
        .lab
        .landfall_reading(&["plan", "-f", "-"], &[], "{")
        .await;
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stdout.starts_with("error: -:1: "), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_validates_files_folders_and_standard_input() {
    let lab = Lab::new();
    let good = svc("web")
        .tcp(8080)
        .members(&[lab.ranges.backend(1, 3001)])
        .yaml();
    lab.write("good.yaml", &good);
    let check = |arguments: &[&str], input: &str| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let input = input.to_owned();
        let lab = &lab;
        async move {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            lab.landfall_reading(&arguments, &[], &input).await
        }
    };
    let folder = lab.folder();
    let folder = folder.to_str().unwrap();
    let nothing_wrong = "1 Service: 0 errors, 0 warnings\n";
    assert_eq!(
        check(&["check", "-f", folder], "").await.good(),
        nothing_wrong
    );
    assert_eq!(
        check(&["check", "-f", "-"], &good).await.good(),
        nothing_wrong
    );
    let file = lab.file("good.yaml");
    assert_eq!(
        check(&["check", "-f", file.to_str().unwrap()], "")
            .await
            .good(),
        nothing_wrong
    );

    // Warnings are printed and are no failure.
    let warned = svc("warned")
        .tcp(8080)
        .members(&[lab.ranges.backend(1, 3001)])
        .annotation("loadbalancer.openstack.org/flavor-id", "x");
    let ended = check(&["check", "-f", "-"], &warned.yaml()).await;
    assert_eq!(ended.code(), Some(0));
    assert!(
        ended
            .stdout
            .starts_with("warning OptionNotApplicable: -:7: "),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.ends_with("1 Service: 0 errors, 1 warning\n"));

    let bad = svc("bad")
        .port("a", "TCP", 8080)
        .port("b", "UDP", 8080)
        .option("endpoints", "localhost")
        .option("mode.b", "http")
        .option("algoritm", "x")
        .option("drain.c", "1s")
        .spec("loadBalancerIP: 192.0.2.300")
        .yaml();
    lab.write("bad.yaml", &bad);
    lab.write(
        "broken.yaml",
        "apiVersion: v1\nkind: Service\n  metadata:\n",
    );
    lab.write("twice.yaml", &good);
    let ended = check(&["check", "-f", folder], "").await;
    assert_eq!(ended.code(), Some(1));
    insta::assert_snapshot!("check", lab.hide(&ended.stdout));
    let ended = check(&["check", "-o", "json", "-f", folder], "").await;
    assert_eq!(ended.code(), Some(1));
    let verdict: Value = serde_json::from_str(&ended.stdout).unwrap();
    let findings = verdict["findings"].as_array().unwrap();
    let count = |severity: &str| {
        findings
            .iter()
            .filter(|it| it["severity"] == severity)
            .count()
    };
    assert_eq!(verdict["errors"], count("error"));
    assert_eq!(verdict["warnings"], count("warning"));
    assert_eq!(verdict["services"], 2);
    let unknown = findings
        .iter()
        .find(|it| it["code"] == "UnknownAnnotation")
        .unwrap();
    assert_eq!(
        *unknown,
        json!({
            "service": "default/bad",
            "code": "UnknownAnnotation",
            "severity": "error",
            "field": "metadata.annotations[landfall.dev/algoritm]",
            "value": "x",
            "message": unknown["message"],
            "remedy": unknown["remedy"],
            "origin": {
                "file": lab.file("bad.yaml"),
                "line": line_of(&bad, "algoritm"),
            },
        })
    );

    let ended = check(&["check", "-f", "/nowhere/at/all"], "").await;
    assert_eq!(ended.code(), Some(2));
    assert!(ended.stderr.contains("/nowhere/at/all"), "{}", ended.stderr);
    let ended = check(&["check", "--pool", "127.0.0.0/33", "-f", "-"], &good).await;
    assert_eq!(ended.code(), Some(2));
    assert!(ended.stderr.contains("127.0.0.0/33"), "{}", ended.stderr);
    for wrong in [
        &["check"][..],
        &["check", "-f"],
        &["check", "-o", "xml", "-f", "-"],
    ] {
        let ended = check(wrong, "").await;
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(2), ""),
            "{wrong:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_in_folders_are_read_only_when_asked() {
    let mut lab = Lab::new();
    fs::create_dir(lab.file("inner")).unwrap();
    lab.write("web.yaml", &svc("web").tcp(8080).yaml());
    lab.write("notes.txt", "no manifest");
    fs::write(lab.file("inner/deep.yml"), svc("deep").tcp(8080).yaml()).unwrap();
    fs::write(
        lab.file("inner/deep.json"),
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"json"},
            "spec":{"type":"LoadBalancer","ports":[{"port":80}]}}"#,
    )
    .unwrap();
    let count = |text: &str| text.lines().last().unwrap().to_owned();
    let ended = lab.landfall(&["check", "-f"], &[&lab.folder()]).await;
    assert!(
        count(&ended.stdout).starts_with("1 Service:"),
        "{}",
        ended.stdout
    );
    let ended = lab.landfall(&["check", "-R", "-f"], &[&lab.folder()]).await;
    assert!(
        count(&ended.stdout).starts_with("3 Services"),
        "{}",
        ended.stdout
    );
    lab = lab.also(&["--recursive"]);
    lab.start().await;
    let all = |view: &landfall_model::view::InstanceView| {
        let names = ["web", "deep", "json"].map(|name| format!("default/{name}"));
        names
            .iter()
            .all(|key| find(view, key).is_some())
            .then_some(())
    };
    lab.wait("all three are known", all).await;
    let reason = lab.reason("default/deep", Code::NoEndpoints).await;
    assert_eq!(reason.severity, landfall_model::reason::Severity::Warning);
}
