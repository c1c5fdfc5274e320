//! Each kind of credentials, and a password that changes, at Keystone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_openstack::client::auth::{Auth, CredentialRef, ProjectRef, Scope};
use landfall_openstack::client::{Access, Cloud, CloudConfig, CredentialsSource, ErrorKind, Tls};
use landfall_testkit::openstack::{Logins, Sim};

use crate::rig::stage::Stage;
use crate::rig::{self, user_of};

/// Longer than a service takes a token that has ended for a good one.
const NOTICED: Duration = Duration::from_secs(4);

fn client(stage: &Stage, config: CloudConfig) -> Cloud {
    match stage {
        Stage::Simulated(sim) => rig::over(sim, config),
        #[cfg(feature = "stack")]
        Stage::Real(_) => Cloud::new(config).unwrap(),
    }
}

fn config(stage: &Stage, auth: Auth) -> CloudConfig {
    match stage {
        Stage::Simulated(sim) => CloudConfig::new(&sim.auth_url(), auth),
        #[cfg(feature = "stack")]
        Stage::Real(real) => CloudConfig::new(&real.project().auth_url, auth),
    }
}

fn with_password(stage: &Stage, password: Option<&str>) -> Auth {
    let mut auth = match stage {
        Stage::Simulated(_) => user_of(&Logins::default()),
        #[cfg(feature = "stack")]
        Stage::Real(real) => real.auth(),
    };
    if let (
        Auth::Password {
            password: known, ..
        },
        Some(password),
    ) = (&mut auth, password)
    {
        *known = password.into();
    }
    auth
}

/// Every kind but the password of the user.
fn others(stage: &Stage) -> Vec<Auth> {
    match stage {
        Stage::Simulated(sim) => simulated(sim),
        #[cfg(feature = "stack")]
        Stage::Real(real) => real.logins(),
    }
}

fn simulated(sim: &Sim) -> Vec<Auth> {
    let logins = Logins::default();
    let mut trusted = user_of(&logins);
    if let Auth::Password { scope, .. } = &mut trusted {
        *scope = Scope::Trust(logins.trust);
    }
    let mut by_id = user_of(&Logins::default());
    if let Auth::Password { scope, .. } = &mut by_id {
        *scope = Scope::Project(ProjectRef::Id(sim.project()));
    }
    let credential = Auth::ApplicationCredential {
        credential: CredentialRef::Id(logins.credential),
        secret: logins.credential_secret.into(),
    };
    vec![trusted, by_id, credential]
}

fn change_password(stage: &Stage, password: &str) {
    match stage {
        Stage::Simulated(sim) => {
            sim.configure(|settings| password.clone_into(&mut settings.logins.password));
            sim.revoke_tokens();
        }
        #[cfg(feature = "stack")]
        Stage::Real(real) => real.change_password(password),
    }
}

#[tokio::test(start_paused = true)]
async fn r04_each_kind_of_credentials_opens_the_project() {
    let stage = Stage::new();
    let project = match &stage {
        Stage::Simulated(sim) => sim.project(),
        #[cfg(feature = "stack")]
        Stage::Real(real) => real.project().id.clone(),
    };
    for auth in [vec![with_password(&stage, None)], others(&stage)].concat() {
        let shown = format!("{auth:?}");
        let cloud = client(&stage, config(&stage, auth));
        cloud.check().await.unwrap();
        assert_eq!(cloud.load_balancers().await.unwrap(), [], "{shown}");
        let found = cloud.project_id().await.unwrap().unwrap();
        assert_eq!(found.as_str(), project, "{shown}");
    }
    let wrong = with_password(&stage, Some("wrong"));
    let refused = client(&stage, config(&stage, wrong)).check().await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn r04_a_password_that_changes_is_used_without_a_restart() {
    let stage = Stage::new();
    let next = "the next password";
    let file = Arc::new(Mutex::new(with_password(&stage, None)));
    let read = file.clone();
    let mut config = config(&stage, with_password(&stage, None));
    config.source = Some(CredentialsSource::new(move || {
        let auth = read.lock().unwrap().clone();
        let tls = Tls::default();
        Ok(Access { auth, tls })
    }));
    let cloud = client(&stage, config);
    assert_eq!(cloud.load_balancers().await.unwrap(), []);

    change_password(&stage, next);
    *file.lock().unwrap() = with_password(&stage, Some(next));
    tokio::time::sleep(NOTICED).await;
    assert_eq!(cloud.load_balancers().await.unwrap(), []);
    assert_eq!(cloud.credentials_problem(), None);
    // Nothing else of the project knows the new one.
    stage.revoke_tokens();
}
