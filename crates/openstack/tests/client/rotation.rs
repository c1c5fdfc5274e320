//! Credentials that change while the client is in use.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_openstack::client::auth::{Auth, CredentialRef};
use landfall_openstack::client::{Access, Cloud, CloudConfig, CredentialsSource, ErrorKind, Tls};
use landfall_testkit::openstack::{Logins, Sim};
use serde_json::json;
use tokio::time::advance;

use super::fake::{self, Fake, Reply, catalog, fault, grant, token};
use super::simulated::{connected, password, project};

/// From one reading of the source to the next, at most.
const READ_EVERY: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_secs(1);
const NEW: &str = "the next password";

/// A file with credentials.
#[derive(Clone)]
struct File(Arc<Mutex<Result<Access, String>>>);

impl File {
    fn with(auth: Auth) -> Self {
        Self(Arc::new(Mutex::new(Ok(with(auth)))))
    }

    fn write(&self, auth: Auth) {
        *self.0.lock().unwrap() = Ok(with(auth));
    }

    fn spoil(&self, why: &str) {
        *self.0.lock().unwrap() = Err(why.to_owned());
    }

    fn source(&self) -> CredentialsSource {
        let file = self.clone();
        CredentialsSource::new(move || file.0.lock().unwrap().clone())
    }
}

fn with(auth: Auth) -> Access {
    let tls = Tls::default();
    Access { auth, tls }
}

/// The simulated cloud, a client of it, and its file.
fn scene() -> (Sim, Cloud, File) {
    let sim = Sim::new();
    let file = File::with(password(project()));
    let mut config = CloudConfig::new(&sim.auth_url(), password(project()));
    config.source = Some(file.source());
    let cloud = connected(&sim, config);
    (sim, cloud, file)
}

fn rotated(auth: Auth) -> Auth {
    match auth {
        Auth::Password { user, scope, .. } => Auth::Password {
            user,
            password: NEW.into(),
            scope,
        },
        other => other,
    }
}

/// Changes the user's password at Keystone, which ends its tokens.
fn rotate(sim: &Sim) {
    sim.configure(|settings| NEW.clone_into(&mut settings.logins.password));
    sim.revoke_tokens();
}

/// Logins so far, refused or not.
fn logins(sim: &Sim) -> usize {
    let calls = sim.calls();
    calls
        .iter()
        .filter(|call| call.path.ends_with("/auth/tokens"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_rotated_password_is_used_as_soon_as_the_old_one_is_refused() {
    let (sim, cloud, file) = scene();
    cloud.check().await.unwrap();
    advance(MOMENT).await;
    rotate(&sim);
    file.write(rotated(password(project())));
    cloud.load_balancers().await.unwrap();
    assert_eq!(logins(&sim), 2);
    assert_eq!(cloud.credentials_problem(), None);
    // Later tokens come from the new one, too.
    advance(Duration::from_secs(7200)).await;
    cloud.load_balancers().await.unwrap();
    assert_eq!(logins(&sim), 3);
}

#[tokio::test(start_paused = true)]
async fn an_old_password_that_is_refused_is_replaced_once_the_file_has_the_new_one() {
    let (sim, cloud, file) = scene();
    cloud.check().await.unwrap();
    advance(MOMENT).await;
    rotate(&sim);
    let error = cloud.load_balancers().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    file.write(rotated(password(project())));
    advance(READ_EVERY).await;
    cloud.load_balancers().await.unwrap();
    // The first, the one that was refused, and the new one.
    assert_eq!(logins(&sim), 3);
}

#[tokio::test(start_paused = true)]
async fn a_password_that_keystone_does_not_have_yet_is_tried_once_and_used_later() {
    let (sim, cloud, file) = scene();
    cloud.check().await.unwrap();
    file.write(rotated(password(project())));
    cloud.load_balancers().await.unwrap();
    assert_eq!(logins(&sim), 1, "the file was not read yet");
    for _ in 0..10 {
        advance(READ_EVERY).await;
        cloud.load_balancers().await.unwrap();
    }
    // More attempts would lock the user out.
    assert_eq!(logins(&sim), 2);
    let problem = cloud.credentials_problem().unwrap();
    assert!(
        problem.contains("the new credentials can't be used"),
        "{problem}"
    );
    assert!(problem.contains("401"), "{problem}");
    assert!(!problem.contains(NEW), "{problem}");

    advance(MOMENT).await;
    rotate(&sim);
    cloud.load_balancers().await.unwrap();
    assert_eq!(cloud.credentials_problem(), None);
}

#[tokio::test(start_paused = true)]
async fn another_kind_of_credentials_is_taken_for_the_same_project() {
    let (sim, cloud, file) = scene();
    cloud.check().await.unwrap();
    let logins = Logins::default();
    file.write(Auth::ApplicationCredential {
        credential: CredentialRef::Id(logins.credential),
        secret: logins.credential_secret.into(),
    });
    advance(READ_EVERY).await;
    cloud.load_balancers().await.unwrap();
    // The user's password is not needed any more.
    advance(MOMENT).await;
    rotate(&sim);
    cloud.load_balancers().await.unwrap();
    assert_eq!(cloud.credentials_problem(), None);
}

#[tokio::test(start_paused = true)]
async fn while_the_file_can_not_be_read_the_old_credentials_are_used() {
    let (sim, cloud, file) = scene();
    cloud.check().await.unwrap();
    file.spoil("cloud.conf:3: no key");
    // Beyond the life of a token.
    for _ in 0..3 {
        advance(Duration::from_secs(3000)).await;
        cloud.load_balancers().await.unwrap();
    }
    let problem = cloud.credentials_problem().unwrap();
    assert!(
        problem.ends_with("can't be read again: cloud.conf:3: no key"),
        "{problem}"
    );
    let before = logins(&sim);
    file.write(password(project()));
    advance(READ_EVERY).await;
    cloud.load_balancers().await.unwrap();
    assert_eq!(cloud.credentials_problem(), None);
    assert_eq!(logins(&sim), before, "they are the same as before");
}

/// A Keystone that knows two passwords, the second one for another project or, for a while, not at
/// all; and a client of it with its file.
fn with_two(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> (Fake, Cloud, File) {
    let tries = Mutex::new(0);
    let fake = Fake::new(move |seen, before| match seen.path.as_str() {
        "/identity/v3/auth/tokens" if seen.body.to_string().contains(NEW) => {
            let mut tries = tries.lock().unwrap();
            *tries += 1;
            Some(answer(*tries))
        }
        "/identity/v3/auth/tokens" => Some(token(before + 1)),
        path if path.contains("/pools") => Some(fault(400, &format!("not with {NEW}"))),
        _ => Some(Reply::Json(200, json!({"loadbalancers": []}))),
    });
    let file = File::with(fake::password());
    let cloud = fake.cloud_with(|config| config.source = Some(file.source()));
    (fake, cloud, file)
}

#[tokio::test(start_paused = true)]
async fn credentials_for_another_project_are_not_used() {
    let (fake, cloud, file) = with_two(|_| {
        let mut granted = grant(&catalog());
        granted["token"]["project"]["id"] = json!("p2");
        let headers = vec![("x-subject-token", "of-another".to_owned())];
        Reply::Full(201, headers, granted.to_string())
    });
    cloud.load_balancers().await.unwrap();
    file.write(rotated(fake::password()));
    for _ in 0..3 {
        advance(READ_EVERY).await;
        cloud.load_balancers().await.unwrap();
    }
    let problem = cloud.credentials_problem().unwrap();
    assert!(problem.contains("for the project p2, not p1"), "{problem}");
    let log = fake.log();
    let tokens = log.iter().filter_map(|seen| seen.token.as_deref());
    assert!(tokens.clone().count() > 3 && tokens.clone().all(|it| it == "token-1"));
    // What servers say does not show the secret, although it is not in use.
    let error = cloud.pools(None).await.unwrap_err();
    assert_eq!(error.message, "not with [secret]");
}

#[tokio::test(start_paused = true)]
async fn a_keystone_that_does_not_answer_is_asked_again_with_the_new_credentials() {
    let (_fake, cloud, file) = with_two(|tries| match tries {
        1 => Reply::Json(503, json!({"error": {"message": "later"}})),
        _ => token(7),
    });
    cloud.load_balancers().await.unwrap();
    file.write(rotated(fake::password()));
    advance(READ_EVERY).await;
    cloud.load_balancers().await.unwrap();
    let problem = cloud.credentials_problem().unwrap();
    assert!(problem.contains("later"), "{problem}");
    advance(READ_EVERY).await;
    cloud.load_balancers().await.unwrap();
    assert_eq!(cloud.credentials_problem(), None);
}
