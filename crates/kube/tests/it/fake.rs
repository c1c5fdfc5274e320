//! An API server that lists by rules: it fails, breaks off, or keeps its client waiting.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What becomes of lists of one resource.
#[derive(Clone, Debug)]
pub(crate) enum Lists {
    /// These objects, and then nothing more.
    Of(Vec<String>),
    /// This status.
    Failing(u16),
    /// As the authorizer does where a role is missing.
    Denied,
    /// This object, and then the end of the connection.
    Breaking(String),
    /// These objects, and then these are deleted and the connection ends.
    Deleting(Vec<String>, Vec<String>),
    /// Nothing, until the rule changes.
    Waiting,
}

type Rules = BTreeMap<&'static str, Lists>;

/// It ends when this is dropped.
pub(crate) struct Fake {
    rules: watch::Sender<Rules>,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    /// The queries of lists that are not streamed.
    paged: Arc<Mutex<Vec<(String, String)>>>,
    folder: tempfile::TempDir,
    _serving: JoinSet<()>,
}

// === impl Fake ===

impl Fake {
    /// Starts a server that lists nothing but what the rules name.
    pub(crate) async fn start(rules: &[(&'static str, Lists)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "{{clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], current-context: x, \
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}], \
             users: [{{name: u, user: {{}}}}]}}"
        );
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let rules = watch::Sender::new(rules.iter().cloned().collect());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let paged = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let (reported, received) = (rules.subscribe(), asked.clone());
        let listed = paged.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (reported, received) = (reported.clone(), received.clone());
                connections.spawn(answer(client, reported, received, listed.clone()));
            }
        });
        Self {
            rules,
            asked,
            paged,
            folder,
            _serving: serving,
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(crate) fn set(&self, resource: &'static str, lists: Lists) {
        self.rules.send_modify(|rules| {
            rules.insert(resource, lists);
        });
    }

    /// The queries of lists of a resource that were not to be streamed.
    pub(crate) fn paged(&self, resource: &str) -> Vec<String> {
        let paged = self.paged.lock().unwrap();
        let those = paged.iter().filter(|(what, _)| what == resource);
        those.map(|(_, query)| query.clone()).collect()
    }

    /// When lists of a resource were asked for.
    pub(crate) fn asked(&self, resource: &str) -> Vec<Instant> {
        let asked = self.asked.lock().unwrap();
        let those = asked.iter().filter(|(what, _)| what == resource);
        those.map(|(_, at)| *at).collect()
    }
}

/// One page of a list.
fn page(objects: &[String], query: &str) -> String {
    let number = |name: &str| -> usize {
        let mut values = query.split('&').filter_map(|it| it.split_once('='));
        let found = values.find(|(key, _)| *key == name);
        found.map_or(0, |(_, value)| value.parse().unwrap())
    };
    let rest = &objects[number("continue")..];
    let (items, rest) = rest.split_at(number("limit").min(rest.len()));
    let next = match rest.len() {
        0 => String::new(),
        left => (objects.len() - left).to_string(),
    };
    let items = items.join(",");
    format!(
        "{{\"metadata\":{{\"resourceVersion\":\"9\",\"continue\":\"{next}\"}},\"items\":[{items}]}}"
    )
}

/// The path and the query of a request.
async fn request(client: &mut TcpStream) -> (String, String) {
    let mut lines = BufReader::new(client).lines();
    let mut request = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.is_empty() {
            break;
        }
        if request.is_empty() {
            request = line;
        }
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (path.to_owned(), query.to_owned())
}

async fn answer(
    mut client: TcpStream,
    mut rules: watch::Receiver<Rules>,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    paged: Arc<Mutex<Vec<(String, String)>>>,
) {
    let (path, query) = request(&mut client).await;
    let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
    if query.contains("sendInitialEvents") {
        asked
            .lock()
            .unwrap()
            .push((resource.clone(), Instant::now()));
    }
    if query.contains("limit=") {
        let request = (resource.clone(), query.clone());
        paged.lock().unwrap().push(request);
    }
    let rule = |rules: &Rules| match rules.get(resource.as_str()) {
        None => Some(Lists::Of(Vec::new())),
        Some(Lists::Waiting) => None,
        Some(lists) => Some(lists.clone()),
    };
    let reported = rules.wait_for(|rules| rule(rules).is_some()).await;
    let lists = reported.ok().and_then(|rules| rule(&rules));
    let event =
        |kind: &str, object: &String| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    let added = |object: &String| event("ADDED", object);
    let end = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\",\
               \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";
    let (status, body, goes_on) = match lists {
        None | Some(Lists::Waiting) => return,
        Some(Lists::Of(objects)) if query.contains("limit=") => {
            (200, page(&objects, &query), false)
        }
        Some(Lists::Of(objects)) => {
            let objects: String = objects.iter().map(added).collect();
            (200, objects + end, true)
        }
        Some(Lists::Deleting(objects, deleted)) => {
            let objects: String = objects.iter().map(added).collect();
            let deleted = deleted.iter().map(|object| event("DELETED", object));
            (200, objects + end + &deleted.collect::<String>(), false)
        }
        Some(Lists::Breaking(object)) => (200, added(&object), false),
        Some(Lists::Denied) => {
            let message = format!("{resource} is forbidden: User \"u\" cannot list resource");
            (403, format!("{{\"message\":{message:?}}}"), false)
        }
        Some(Lists::Failing(code)) => (code, format!("{{\"code\":{code}}}"), false),
    };
    let head = format!(
        "HTTP/1.1 {status} By rule\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    );
    // A client that has gone away needs no answer.
    let _gone = client.write_all((head + &body).as_bytes()).await;
    if goes_on {
        std::future::pending::<()>().await;
    }
}
