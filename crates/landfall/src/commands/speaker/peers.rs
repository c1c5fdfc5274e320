//! The sessions of a speaker with routers, and the passwords that they need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_bgp::peer::Password;
use landfall_kube::password::password;
use landfall_kube::{Connection, OwnReports};
use landfall_model::ServiceKey;
use landfall_speaker::peers::PeerSpec;
use landfall_speaker::routing::Routing;
use landfall_speaker::sessions::{Known, Parts, Passwords, Sessions};
use landfall_speaker::task::Outputs;
use tokio::sync::watch;

use crate::cli::SpeakerArgs;
use crate::lifetime::Lifetime;

/// Between two reads of the Secrets. A watch would need the right to list all of them.
const LOOK: Duration = Duration::from_secs(10);

/// Starts the sessions with routers that a speaker decides on.
pub fn start(
    connection: &Connection,
    args: &SpeakerArgs,
    outputs: &Outputs,
    reporter: &Arc<OwnReports>,
    lifetime: &Lifetime,
) -> Arc<Sessions> {
    let (passwords, known) = watch::channel(Arc::default());
    let reading = read(connection.clone(), outputs.routing.clone(), passwords);
    let cancel = lifetime.cancel.clone();
    let tasks = &lifetime.tasks;
    tasks.spawn(cancel.run_until_cancelled_owned(reading));
    let parts = Parts {
        node: args.node_name.as_str().into(),
        routing: outputs.routing.clone(),
        passwords: known,
        reporter: Arc::clone(reporter),
        listen: args.bgp_listen,
    };
    Arc::new(Sessions::start(parts))
}

/// Reads the Secrets that peers name, again and again: a password can be replaced at any time.
async fn read(
    connection: Connection,
    mut routing: watch::Receiver<Option<Arc<Routing>>>,
    passwords: watch::Sender<Arc<Passwords>>,
) {
    loop {
        let secrets: BTreeSet<ServiceKey> = {
            let routing = routing.borrow_and_update();
            let peers = routing.iter().flat_map(|it| it.peers.values());
            peers.flat_map(PeerSpec::secrets).cloned().collect()
        };
        let before = Arc::clone(&passwords.borrow());
        let mut now = Passwords::new();
        for key in secrets {
            let known = ask(&connection, &key, before.get(&key)).await;
            now.insert(key, known);
        }
        passwords.send_if_modified(|known| {
            let is_new = **known != now;
            *known = Arc::new(now);
            is_new
        });
        tokio::select! {
            changed = routing.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// What can't be read stays as it was.
async fn ask(connection: &Connection, key: &ServiceKey, before: Option<&Known>) -> Known {
    let problem = match password(connection, key).await {
        Ok(text) => match Password::new(&text) {
            Ok(password) => {
                return Known {
                    password: Some(password),
                    problem: None,
                };
            }
            Err(error) => format!("Secret {key} has {error}"),
        },
        Err(error) => error.to_string(),
    };
    Known {
        password: before.and_then(|before| before.password.clone()),
        problem: Some(problem),
    }
}
