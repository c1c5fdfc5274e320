//! `get` and `explain`: what a running instance says of itself, for people and for programs.

use landfall_model::view::{Health, ServiceView};
use serde_json::{Value, json};

use crate::backend::Backend;
use crate::client::{self, Talk};
use crate::lab::Lab;
use crate::manifest::{slice, svc};
use crate::view::{at, is_ready, listener};

/// Services in every state that there is.
pub struct Showcase {
    pub lab: Lab,
    _backends: Vec<Backend>,
}

// === impl Showcase ===

impl Showcase {
    pub async fn set() -> Self {
        let mut lab = Lab::new();
        let mut backends = Vec::new();
        for (number, name) in [(1, "shop-a"), (2, "shop-b"), (3, "shop-c")] {
            backends.push(Backend::http(name, lab.ranges.backend(number, 3001)).await);
        }
        backends[2].sick(true);
        backends.push(Backend::datagrams("dns", lab.ranges.backend(1, 3053)).await);
        backends.push(Backend::lines("dns", lab.ranges.backend(1, 3053)).await);
        let web = |number| lab.ranges.backend(number, 3001);

        let shop = svc("shop")
            .namespace("store")
            .port("http", "TCP", 8080)
            .option("monitor", "http")
            .option("monitor-path", "/healthz")
            .option("monitor-delay", "1s")
            .option("member-weights", "shop-a=3");
        let pods = [("shop-a", web(1)), ("shop-b", web(2)), ("shop-c", web(3))];
        let pods = slice("shop", "http", "TCP", &pods);
        let pods = pods.replace("metadata:\n", "metadata:\n  namespace: store\n");
        let shop = format!("{}---\n{pods}", shop.yaml());

        let members = format!("{} weight=3, {}, {} backup", web(1), web(2), web(3));
        let api = svc("api")
            .port("http", "TCP", 8080)
            .port("admin", "TCP", 8081)
            .option("endpoints", &members)
            .option("mode.http", "http")
            .option("algorithm", "LEAST_CONNECTIONS")
            .option("connection-limit.admin", "10")
            .option("proxy-protocol.admin", "v2")
            .spec("sessionAffinity: ClientIP")
            .spec("loadBalancerSourceRanges: [127.0.0.0/8, \"::1/128\"]");

        let dns = svc("dns")
            .port("dns-udp", "UDP", 8053)
            .port("dns-tcp", "TCP", 8053)
            .option("endpoints", &lab.ranges.backend(1, 3053).to_string())
            .option("hostname", "ns.example.org");

        let later = svc("later").tcp(8080);

        let wrong = svc("wrong")
            .tcp(8080)
            .option("drain", "soon")
            .option("monitor-port", "0")
            .spec("loadBalancerSourceRanges: [all]");

        let elsewhere = svc("elsewhere").tcp(8080).option("addresses", "192.0.2.7");

        let none = "apiVersion: v1\nkind: Service\nmetadata: {name: inside}\n\
                    spec: {ports: [{port: 80}]}\n";
        lab.write("7-none.yaml", none);

        // One after the other, so that each has the same address in every run.
        lab.start().await;
        for (name, key, text) in [
            ("1-shop", "store/shop", shop),
            ("2-api", "default/api", api.yaml()),
            ("3-dns", "default/dns", dns.yaml()),
            ("4-later", "default/later", later.yaml()),
            ("5-wrong", "default/wrong", wrong.yaml()),
            ("6-elsewhere", "default/elsewhere", elsewhere.yaml()),
        ] {
            lab.write(&format!("{name}.yaml"), &text);
            let validated = |service: &ServiceView| !service.status.conditions.is_empty();
            lab.until(key, "was validated", validated).await;
        }
        for key in ["default/api", "default/dns"] {
            lab.ready(key).await;
        }
        lab.until(
            "store/shop",
            "has found the member that is down",
            |service| {
                let health = |name: &str| {
                    let mut members = service.listeners.iter().flat_map(|it| &it.members);
                    let member = members.find(|it| it.name.as_deref() == Some(name));
                    member.map(|member| member.health)
                };
                is_ready(service)
                    && health("shop-a") == Some(Health::Up)
                    && health("shop-b") == Some(Health::Up)
                    && health("shop-c") == Some(Health::Down)
            },
        )
        .await;
        lab.settled().await;
        Self {
            lab,
            _backends: backends,
        }
    }

    async fn say(&self, arguments: &[&str]) -> String {
        let text = self.lab.landfall(arguments, &[]).await.good();
        self.lab.hide(&text)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_and_explain_show_what_is_served_and_why_not() {
    let scene = Showcase::set().await;
    insta::assert_snapshot!("get", scene.say(&["get", "services"]).await);
    insta::assert_snapshot!("get_wide", scene.say(&["get", "svc", "-o", "wide"]).await);
    insta::assert_snapshot!(
        "get_of_a_namespace",
        scene.say(&["get", "services", "-n", "store"]).await
    );
    assert_eq!(
        scene
            .say(&["get", "services", "--namespace", "empty"])
            .await,
        "no Services of type LoadBalancer\n"
    );
    for service in ["shop", "api", "dns", "later", "wrong", "elsewhere"] {
        let namespace = if service == "shop" {
            "store"
        } else {
            "default"
        };
        let key = format!("{namespace}/{service}");
        let text = scene.say(&["explain", &key]).await;
        insta::assert_snapshot!(format!("explain_{service}"), text);
    }

    let ended = scene
        .lab
        .landfall(&["explain", "default/inside"], &[])
        .await;
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        ended.stderr,
        "landfall: no Service default/inside of type LoadBalancer is served by this instance; \
         it serves default/api, default/dns, default/elsewhere, for example\n"
    );
    let ended = scene.lab.landfall(&["explain", "inside"], &[]).await;
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("NAMESPACE/NAME"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_prints_a_list_as_kubectl_does() {
    let scene = Showcase::set().await;
    let text = scene
        .lab
        .landfall(&["get", "services", "-o", "json"], &[])
        .await
        .good();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(list["kind"], "List");
    assert_eq!(list["metadata"], json!({"resourceVersion": ""}));
    let items = list["items"].as_array().unwrap();
    let names: Vec<_> = items
        .iter()
        .map(|it| it["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["api", "dns", "elsewhere", "later", "wrong", "shop"]);
    for item in items {
        assert_eq!(item["apiVersion"], "v1");
        assert_eq!(item["kind"], "Service");
        assert_eq!(item["spec"]["type"], "LoadBalancer");
        let created = item["metadata"]["creationTimestamp"].as_str().unwrap();
        assert!(created.ends_with('Z') && created.contains('T'), "{created}");
        let uid = item["metadata"]["uid"].as_str().unwrap();
        assert_eq!(uid.len(), 36, "{uid}");
        let kinds: Vec<_> = item["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| condition["type"].clone())
            // Beside annotations of Landfall's own, which not every Service has.
            .filter(|kind| *kind != landfall_model::recorded::RECORDED)
            .collect();
        let expected = ["Accepted", "Addressed", "Programmed"];
        assert_eq!(kinds, expected.map(|kind| format!("landfall.dev/{kind}")));
    }
    let item = |name: &str| {
        items
            .iter()
            .find(|it| it["metadata"]["name"] == name)
            .unwrap()
    };
    let shop = item("shop");
    assert_eq!(
        shop["metadata"]["finalizers"],
        json!(["service.kubernetes.io/load-balancer-cleanup"])
    );
    assert_eq!(shop["metadata"]["namespace"], "store");
    let view = scene.lab.service("store/shop").await;
    let address = view.status.addresses().next().unwrap().to_string();
    assert_eq!(
        shop["status"]["loadBalancer"]["ingress"],
        json!([{"ip": address, "ipMode": "Proxy"}])
    );
    let ingress = |name: &str| item(name)["status"]["loadBalancer"]["ingress"].clone();
    assert_eq!(ingress("dns"), json!([{"hostname": "ns.example.org"}]));
    // Requests are read on the way: nodes must not take a short cut around that.
    assert_eq!(ingress("api")[0]["ipMode"], "Proxy");
    assert_eq!(ingress("elsewhere"), Value::Null);

    let yaml = scene
        .lab
        .landfall(&["get", "services", "-o", "yaml"], &[])
        .await
        .good();
    let as_yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(as_yaml, list);
    let arguments = ["get", "services", "-o", "json", "-n", "store"];
    let text = scene.lab.landfall(&arguments, &[]).await.good();
    let only: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(only["items"], json!([shop]));

    let text = scene
        .lab
        .landfall(&["explain", "store/shop", "-o", "json"], &[])
        .await
        .good();
    let explained: ServiceView = serde_json::from_str(&text).unwrap();
    assert_eq!(explained.status, view.status);
    assert_eq!(explained.reasons, view.reasons);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_printed_can_be_served_again() {
    let scene = Showcase::set().await;
    let yaml = scene
        .lab
        .landfall(&["get", "services", "-o", "yaml"], &[])
        .await
        .good();
    let again = Lab::new().reading(&yaml).started().await;
    let view = again.view().await;
    let keys: Vec<_> = view.services.iter().map(|it| it.key.to_string()).collect();
    let expected = ["api", "dns", "elsewhere", "later", "wrong"];
    let mut expected = expected.map(|name| format!("default/{name}")).to_vec();
    expected.push("store/shop".to_owned());
    assert_eq!(keys, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_from_standard_input_are_served() {
    let ranges = crate::ranges::Ranges::claim();
    let backend = Backend::lines("pod", ranges.backend(1, 3001)).await;
    let one = svc("one").tcp(8080).members(&[backend.address]).yaml();
    let other = svc("other").tcp(8080).members(&[backend.address]).yaml();
    let lab = Lab::new()
        .reading(&format!("{one}---\n{other}"))
        .started()
        .await;
    for name in ["one", "other"] {
        let service = lab.ready(&format!("default/{name}")).await;
        let origin = service.origin.clone().unwrap();
        assert_eq!(&*origin.file, "-");
        let target = crate::view::at(&service, 8080);
        assert_eq!(client::member(target).await.unwrap(), "pod");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_and_explain_show_what_was_refused_and_how_many_wait() {
    let lab = Lab::new();
    let lines = Backend::lines("lines", lab.ranges.backend(1, 3001)).await;
    let closed = svc("closed").tcp(8080).members(&[lines.address]);
    let closed = closed.spec("loadBalancerSourceRanges: [192.0.2.0/24]");
    lab.write("closed.yaml", &closed.yaml());
    let busy = svc("busy").tcp(8080).members(&[lines.address]);
    let busy = busy
        .option("member-connection-limit", "1")
        .option("member-queue-timeout", "1h");
    lab.write("busy.yaml", &busy.yaml());
    let lab = lab.started().await;
    let wide = ["get", "services", "-o", "wide"];
    let list = lab.landfall(&wide, &[]).await.good();
    assert!(!list.contains("REFUSED"), "{list}");

    let target = at(&lab.ready("default/closed").await, 8080);
    assert!(client::member(target).await.is_err());
    let refused = |service: &ServiceView| listener(service, 8080).traffic.failed == 1;
    lab.until("default/closed", "has refused one", refused)
        .await;
    let target = at(&lab.ready("default/busy").await, 8080);
    let mut served = Talk::to(target).await.unwrap();
    served.say("name").await.unwrap();
    let _waiting = Talk::to(target).await.unwrap();
    let waits = |service: &ServiceView| {
        let measured = listener(service, 8080).measured.as_ref();
        measured.is_some_and(|measured| measured.waiting == 1)
    };
    lab.until("default/busy", "has one that waits", waits).await;

    let list = lab.landfall(&wide, &[]).await.good();
    assert!(list.contains("REFUSED"), "{list}");
    assert!(list.contains("8080/TCP: 1 source"), "{list}");
    let closed = lab.landfall(&["explain", "default/closed"], &[]).await;
    let closed = closed.good();
    assert!(closed.contains("1 failed (1 source)\n"), "{closed}");
    let busy = lab.landfall(&["explain", "default/busy"], &[]).await.good();
    assert!(busy.contains("1 waiting for a member"), "{busy}");
}
