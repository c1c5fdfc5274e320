//! A Service that must go on being served whatever is wrong with another one beside it, and the
//! reasons that are reported for that one.

use std::net::SocketAddr;

use landfall_model::reason::{Code, Origin, Reason, Severity};
use landfall_model::view::ServiceView;

use crate::backend::Backend;
use crate::client;
use crate::lab::Lab;
use crate::manifest::{Svc, svc};
use crate::process::Ended;
use crate::view::{at, is_ready};

/// A running instance with a Service that must go on being served, whatever happens beside it.
pub struct Scene {
    pub lab: Lab,
    pub backend: Backend,
    pub witness: SocketAddr,
}

// === impl Scene ===

impl Scene {
    pub async fn set() -> Self {
        Self::of(Lab::new()).await
    }

    pub async fn of(mut lab: Lab) -> Self {
        let backend = Backend::lines("pod", lab.ranges.backend(1, 3001)).await;
        let witness = svc("witness").tcp(7000).members(&[backend.address]);
        lab.write("witness.yaml", &witness.yaml());
        lab.start().await;
        let witness = at(&lab.ready("default/witness").await, 7000);
        Self {
            lab,
            backend,
            witness,
        }
    }

    /// A Service of the scene's member.
    pub fn web(&self) -> Svc {
        svc("web").tcp(8080).members(&[self.backend.address])
    }

    pub async fn witness_serves(&self) {
        let witness = self.lab.service("default/witness").await;
        assert!(is_ready(&witness), "{witness:?}");
        assert_eq!(witness.reasons, []);
        assert_eq!(client::member(self.witness).await.unwrap(), "pod");
    }

    /// The reason of `web`, which all report: the API, `explain`, and `check`, which fails.
    pub async fn reported(&self, code: Code) -> Reason {
        let reason = self.lab.reason("default/web", code).await;
        assert!(!reason.remedy.is_empty(), "no remedy: {reason}");
        let reported = |service: &ServiceView| !service.status.conditions.is_empty();
        self.lab
            .until("default/web", "was reported", reported)
            .await;
        self.explained(&reason).await;
        self.witness_serves().await;
        reason
    }

    pub async fn explained(&self, reason: &Reason) {
        let text = self
            .lab
            .landfall(&["explain", "default/web"], &[])
            .await
            .good();
        let head = format!("{} {}: ", reason.severity, reason.code);
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(&head));
        let line = line.unwrap_or_else(|| panic!("{head} is not explained:\n{text}"));
        let origin = reason.origin.as_ref().map(ToString::to_string);
        let value = reason.value.as_ref().map(|value| format!("{value:?}"));
        let parts = [
            origin,
            reason.field.clone(),
            value,
            Some(reason.message.clone()),
        ];
        for part in parts.into_iter().flatten() {
            assert!(line.contains(&part), "{part} is missing in\n{line}");
        }
        assert_eq!(lines.next(), Some(reason.remedy.as_str()), "{text}");
    }

    /// `check` of the folder, with the pools that are served from.
    pub async fn check(&self) -> Ended {
        let mut arguments = vec!["check"];
        arguments.extend(self.lab.pool_options());
        arguments.push("-f");
        self.lab.landfall(&arguments, &[&self.lab.folder()]).await
    }

    /// `check` finds the very same, and nothing else.
    pub async fn checked(&self, reason: &Reason) {
        let ended = self.check().await;
        let code = i32::from(reason.severity == Severity::Error);
        assert_eq!(ended.code(), Some(code), "{}{}", ended.stdout, ended.stderr);
        let expected = format!(
            "{} {}: {reason} (default/web)",
            reason.severity, reason.code
        );
        let found: Vec<&str> = ended.stdout.lines().collect();
        let (summary, findings) = found.split_last().unwrap();
        assert_eq!(findings, [expected], "{summary}");
    }

    /// After mending, nothing is left to say.
    pub async fn healed(&self) -> SocketAddr {
        let healed = |service: &ServiceView| is_ready(service) && service.reasons.is_empty();
        let web = self.lab.until("default/web", "is healed", healed).await;
        let target = at(&web, 8080);
        assert_eq!(client::member(target).await.unwrap(), "pod");
        self.witness_serves().await;
        let checked = self.check().await;
        assert!(checked.good().ends_with("0 errors, 0 warnings\n"));
        target
    }
}

/// A place in a file of the lab.
pub fn origin(lab: &Lab, name: &str, line: u32) -> Origin {
    Origin {
        file: lab.file(name).to_str().unwrap().into(),
        line,
    }
}
