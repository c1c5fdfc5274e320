use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_engine::report::{Event, Found, OwnKind, OwnObject, OwnReport, ReportError, Version};
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_model::rows::{Fact, ResourceKind};
use landfall_model::{ServiceKey, Uid};
use landfall_speaker::decide::{Announces, Decider};
use landfall_speaker::sessions;
use landfall_speaker::status::Statuses;
use landfall_testkit::node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::routes::{service, speaker};
use crate::support::{peer, resource};

/// An API server with objects whose names begin with their kind, and what was asked of it.
#[derive(Debug, Default)]
pub struct Server {
    pub objects: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
    is_away: Mutex<bool>,
    /// Objects of others can't be deleted.
    keeps_others: Mutex<bool>,
    /// What another process writes right before the next deletion.
    meanwhile: Mutex<BTreeMap<String, Value>>,
}

impl Server {
    fn asks(&self) -> Result<(), ReportError> {
        if *self.is_away.lock().unwrap() {
            return Err(ReportError::Failed {
                what: "own status",
                why: "away".to_owned(),
            });
        }
        Ok(())
    }

    fn wrote(&self, what: String) -> Result<(), ReportError> {
        self.asks()?;
        self.writes.lock().unwrap().push(what);
        Ok(())
    }

    pub fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
    }

    /// Lets another process write all objects right before the next deletion.
    pub fn write_all_meanwhile(&self) {
        let mut objects = self.objects.lock().unwrap().clone();
        for status in objects.values_mut() {
            status["isNew"] = true.into();
        }
        *self.meanwhile.lock().unwrap() = objects;
    }

    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }
}

impl OwnReport for Server {
    async fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> Result<Version, ReportError> {
        let service = object.labels.get("metallb.io/service-name");
        let what = service.unwrap_or(&object.name);
        self.wrote(format!("write {what}"))?;
        let status = serde_json::to_value(status).unwrap();
        let name = object.name.clone();
        let version = version(&status);
        self.objects.lock().unwrap().insert(name, status);
        Ok(version)
    }

    async fn delete_own(&self, object: &OwnObject, version: &Version) -> Result<(), ReportError> {
        let meanwhile = std::mem::take(&mut *self.meanwhile.lock().unwrap());
        self.objects.lock().unwrap().extend(meanwhile);
        let there = self.objects.lock().unwrap().get(&object.name).cloned();
        let what = "own status";
        if there.as_ref().is_some_and(|it| it["isKept"] == true) {
            let why = "it is kept".to_owned();
            return Err(ReportError::Failed { what, why });
        }
        if there.is_some_and(|it| self::version(&it) != *version) {
            return Err(ReportError::Conflict { what });
        }
        self.wrote("delete".to_owned())?;
        self.objects.lock().unwrap().remove(&object.name);
        Ok(())
    }

    async fn delete_matching(&self, _: &OwnKind, selector: &str) -> Result<(), ReportError> {
        if *self.keeps_others.lock().unwrap() {
            return Err(ReportError::Failed {
                what: "own status",
                why: "it fails over".to_owned(),
            });
        }
        self.wrote(format!("delete {selector}"))
    }

    async fn list_own<S: DeserializeOwned + Send>(
        &self,
        kind: &OwnKind,
        selector: &str,
    ) -> Result<Vec<Found<S>>, ReportError> {
        self.asks()?;
        let prefix = match kind.kind {
            "ServiceL2Status" => "l2-",
            "ServiceBGPStatus" => "bgp-",
            _ => "session-",
        };
        let objects = self.objects.lock().unwrap();
        let of_kind = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let of_node = of_kind.filter(|(_, status)| {
            let node = status["node"].as_str().unwrap();
            match selector.split_once(" notin (") {
                Some((_, names)) => names.trim_end_matches(')').split(',').all(|it| it != node),
                None => selector.ends_with(&format!("/node={node}")),
            }
        });
        let read = of_node.map(|(name, status)| Found {
            name: name.clone(),
            version: version(status),
            status: serde_json::from_value(status.clone()).ok(),
        });
        Ok(read.collect())
    }

    async fn own_event(&self, _: &ServiceKey, _: &Uid, _: &Event) {}
}

/// The version of an object that says this.
fn version(status: &Value) -> Version {
    Version {
        uid: String::new(),
        resource_version: status.to_string(),
    }
}

fn announces(names: &[&str], took_over: bool) -> BTreeMap<ServiceKey, Announces> {
    let said = Announces {
        through: BTreeSet::from(["eth0".to_owned()]),
        took_over,
    };
    let keys = names.iter().map(|name| ServiceKey::new("shop", name));
    keys.map(|key| (key, said.clone())).collect()
}

fn statuses(server: &Arc<Server>) -> Statuses<Server, ServiceL2Status> {
    Statuses::new(Arc::clone(server), "node-a", "metallb-system", None)
}

#[tokio::test]
async fn a_status_is_written_once_and_a_restart_writes_nothing() {
    let server = Arc::new(Server::default());
    let mut writer = statuses(&server);
    let wanted = announces(&["cart", "web"], false);
    writer.settle(&wanted).await.unwrap();
    assert_eq!(server.take_writes(), ["write cart", "write web"]);
    writer.settle(&wanted).await.unwrap();
    statuses(&server).settle(&wanted).await.unwrap();
    assert_eq!(server.take_writes(), [] as [String; 0]);
    let status = server
        .objects
        .lock()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .clone();
    assert_eq!(status["node"], "node-a");
    assert_eq!(status["serviceNamespace"], "shop");
    assert_eq!(status["interfaces"][0]["name"], "eth0");
}

#[tokio::test]
async fn what_is_not_announced_any_more_is_deleted_also_after_a_restart() {
    let server = Arc::new(Server::default());
    statuses(&server)
        .settle(&announces(&["cart", "web"], false))
        .await
        .unwrap();
    server.take_writes();
    statuses(&server)
        .settle(&announces(&["web"], false))
        .await
        .unwrap();
    assert_eq!(server.take_writes(), ["delete"]);
}

#[tokio::test]
async fn what_another_process_wrote_meanwhile_is_deleted_only_once_it_was_read() {
    let server = Arc::new(Server::default());
    let mut writer = statuses(&server);
    writer.settle(&announces(&["web"], false)).await.unwrap();
    server.write_all_meanwhile();
    let error = writer.settle(&announces(&[], false)).await.unwrap_err();
    assert!(matches!(error, ReportError::Conflict { .. }), "{error}");
    assert_eq!(server.objects.lock().unwrap().len(), 1);
    writer.settle(&announces(&[], false)).await.unwrap();
    assert_eq!(server.objects.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn the_one_that_takes_over_deletes_what_others_said() {
    let server = Arc::new(Server::default());
    statuses(&server)
        .settle(&announces(&["web"], true))
        .await
        .unwrap();
    let of_others = "delete metallb.io/service-name=web,metallb.io/service-namespace=shop,\
                     metallb.io/node!=node-a";
    assert_eq!(server.take_writes(), ["write web", of_others]);
}

#[tokio::test]
async fn what_others_said_is_deleted_later_where_that_fails_at_first() {
    let server = Arc::new(Server::default());
    let mut writer = statuses(&server);
    let wanted = announces(&["web"], true);
    *server.keeps_others.lock().unwrap() = true;
    writer.settle(&wanted).await.unwrap_err();
    *server.keeps_others.lock().unwrap() = false;
    server.take_writes();
    writer.settle(&wanted).await.unwrap();
    let asked = server.take_writes();
    let of_others = |it: &String| it.starts_with("delete metallb.io/service-name=web");
    assert!(asked.iter().any(of_others), "{asked:?}");
    writer.settle(&wanted).await.unwrap();
    assert!(server.take_writes().is_empty());
}

#[tokio::test]
async fn what_others_say_of_a_service_that_they_took_back_stays() {
    let server = Arc::new(Server::default());
    let mut writer = statuses(&server);
    *server.keeps_others.lock().unwrap() = true;
    writer.settle(&announces(&["web"], true)).await.unwrap_err();
    *server.keeps_others.lock().unwrap() = false;
    server.take_writes();
    writer.settle(&announces(&[], true)).await.unwrap();
    assert_eq!(server.take_writes(), ["delete"]);
}

#[tokio::test]
async fn what_could_not_be_written_is_written_later() {
    let server = Arc::new(Server::default());
    let mut writer = statuses(&server);
    *server.is_away.lock().unwrap() = true;
    let wanted = announces(&["web"], false);
    writer.settle(&wanted).await.unwrap_err();
    *server.is_away.lock().unwrap() = false;
    writer.settle(&wanted).await.unwrap();
    assert_eq!(server.take_writes(), ["write web"]);
}

#[tokio::test]
async fn the_routers_of_a_service_are_written_to_an_object_of_another_kind() {
    let server = Arc::new(Server::default());
    let mut statuses: Statuses<_, ServiceBgpStatus> =
        Statuses::new(Arc::clone(&server), "node-a", "metallb-system", None);
    let said = Announces {
        through: BTreeSet::from(["one".to_owned(), "two".to_owned()]),
        took_over: false,
    };
    let wanted = BTreeMap::from([(ServiceKey::new("shop", "web"), said)]);
    statuses.settle(&wanted).await.unwrap();
    let objects = server.objects.lock().unwrap().clone();
    let (name, status) = objects.first_key_value().unwrap();
    assert!(name.starts_with("bgp-"), "{name}");
    assert_eq!(status["peers"], serde_json::json!(["one", "two"]));
    let read = ServiceBgpStatus::read(status).unwrap();
    assert_eq!(read.service, ServiceKey::new("shop", "web"));
    assert_eq!(read.node, "node-a");
}

/// What all nodes say: the node, the Service, and the routers.
fn said(server: &Server) -> BTreeSet<(String, String, Vec<String>)> {
    let objects = server.objects.lock().unwrap();
    let said = objects.values().map(|status| {
        let read = ServiceBgpStatus::read(status).unwrap();
        let peers = read.peers.into_iter().collect();
        (read.node, read.service.name().to_owned(), peers)
    });
    let all: BTreeSet<_> = said.collect();
    assert_eq!(all.len(), objects.len(), "one for each Service and node");
    all
}

fn expected(all: &[(&str, &str, &[&str])]) -> BTreeSet<(String, String, Vec<String>)> {
    let all = all.iter().map(|(node, service, peers)| {
        let peers = peers.iter().map(|it| (*it).to_owned()).collect();
        ((*node).to_owned(), (*service).to_owned(), peers)
    });
    all.collect()
}

#[tokio::test]
async fn row_91_each_node_says_of_each_service_to_which_of_the_selected_routers_it_goes() {
    let rack = json!({"nodeSelectors": [{"matchLabels": {"rack": "two"}}],
        "peerAddress": "192.0.2.253"});
    let selected = json!({"peers": ["rack"],
        "serviceSelectors": [{"matchLabels": {"app": "api"}}]});
    let advertised =
        |name, spec: &Value| resource(ResourceKind::BgpAdvertisement, "v1beta1", name, spec);
    let mut facts = service("web", "192.0.2.1");
    facts.extend(service("api", "192.0.2.2"));
    facts.push(peer("tor", &json!({})));
    facts.push(peer("rack", &rack));
    let of_web = json!({"serviceSelectors": [{"matchLabels": {"app": "web"}}]});
    facts.push(advertised("web", &of_web));
    facts.push(advertised("api", &selected));
    let server = Arc::new(Server::default());
    let start = |own: &'static str| {
        let mut decider = speaker(own, facts.clone());
        let second = node("node-b", "10.0.0.2").labelled("rack", "two");
        decider.take_facts(vec![Fact::Node(second.row())]);
        let writer: Statuses<_, ServiceBgpStatus> =
            Statuses::new(Arc::clone(&server), own, "metallb-system", None);
        (decider, writer)
    };
    let mut nodes = ["node-a", "node-b"].map(start);
    let settle = async |nodes: &mut [(Decider, Statuses<Server, ServiceBgpStatus>)]| {
        for (decider, writer) in nodes {
            let announces = sessions::announces(decider.routing());
            writer.settle(&announces).await.unwrap();
        }
    };
    settle(&mut nodes).await;
    let both = [
        ("node-a", "web", &["tor"][..]),
        ("node-b", "api", &["rack"]),
        ("node-b", "web", &["rack", "tor"]),
    ];
    assert_eq!(said(&server), expected(&both));

    // A router that does not select the node any more is not named, and its Service not announced.
    for (decider, _) in &mut nodes {
        let moved = node("node-b", "10.0.0.2").labelled("rack", "one");
        decider.take_facts(vec![Fact::Node(moved.row())]);
    }
    settle(&mut nodes).await;
    let one = [("node-a", "web", &["tor"][..]), ("node-b", "web", &["tor"])];
    assert_eq!(said(&server), expected(&one));
    server.take_writes();
    settle(&mut nodes).await;
    assert_eq!(server.take_writes(), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_another_process_deleted_is_written_again_without_a_change() {
    let server = Arc::new(Server::default());
    let announces = Announces {
        through: BTreeSet::from(["eth0".to_owned()]),
        took_over: false,
    };
    let wanted = BTreeMap::from([(ServiceKey::new("default", "web"), announces)]);
    let (change, known) = watch::channel(None);
    let statuses: Statuses<_, ServiceL2Status> =
        Statuses::new(Arc::clone(&server), "one", "metallb-system", None);
    let running = tokio::spawn(statuses.run(known, Clone::clone));
    change.send(Some(Arc::new(wanted))).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.take_writes(), ["write web"]);
    server.objects.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_mins(13)).await;
    assert_eq!(server.take_writes(), ["write web"]);
    // What is as wanted is read, and not written.
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(server.take_writes(), [""; 0]);
    drop(change);
    running.await.unwrap();
}
