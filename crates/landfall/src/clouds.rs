//! The clouds of a configuration as they answer when they are asked.

use std::fmt;

use landfall_model::reason::{Code, Reason};
use landfall_openstack::client::ApiError;
use serde::Serialize;

use crate::account::OpenStackInstance;
use crate::fleet::Instances;

/// A cloud and what it says of itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cloud {
    /// The instance that uses it.
    pub instance: String,
    /// Keystone's address.
    pub auth_url: String,
    /// The id of the project that the account works in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The highest version of Octavia's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub octavia: Option<String>,
    /// Octavia's providers.
    pub providers: Vec<String>,
    /// Why it can't be used.
    #[serde(skip)]
    pub problem: Option<Reason>,
}

/// Asks every cloud that is not switched off.
pub async fn ask(fleet: &Instances) -> Vec<Cloud> {
    let mut clouds = Vec::new();
    for account in fleet.active() {
        clouds.push(ask_one(account).await);
    }
    clouds
}

async fn ask_one(account: &OpenStackInstance) -> Cloud {
    let mut cloud = Cloud {
        instance: account.instance.clone(),
        auth_url: account.auth_url.clone(),
        project: None,
        octavia: None,
        providers: Vec::new(),
        problem: None,
    };
    let instance = &account.instance;
    let refuse = |why: String| {
        let message = format!("instance {instance}: {why}");
        Some(Reason::error(Code::ProviderFailed, message))
    };
    match account.check().await {
        Ok(version) => cloud.octavia = Some(version.to_string()),
        Err(error) => {
            cloud.problem = refuse(error.to_string());
            return cloud;
        }
    }
    if let Err(error) = ask_more(account, &mut cloud).await {
        cloud.problem = refuse(error.to_string());
    }
    let wanted = &account.settings.conf.lb_provider;
    let offered = &cloud.providers;
    if cloud.problem.is_none() && !wanted.is_empty() && !offered.contains(wanted) {
        let offered = offered.join(", ");
        let why = format!("[LoadBalancer] lb-provider: {wanted:?}: Octavia here has {offered}");
        cloud.problem = refuse(why);
    }
    cloud
}

async fn ask_more(account: &OpenStackInstance, answers: &mut Cloud) -> Result<(), ApiError> {
    let project = account.cloud.project_id().await?;
    answers.project = project.map(|id| id.as_str().to_owned());
    let providers = account.cloud.providers().await?;
    answers.providers = providers.into_iter().map(|it| it.name).collect();
    Ok(())
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instance, auth_url) = (&self.instance, &self.auth_url);
        write!(f, "instance {instance}: the cloud at {auth_url} answers: ")?;
        let project = self.project.as_deref().unwrap_or("none");
        let octavia = self.octavia.as_deref().unwrap_or("unknown");
        let providers = self.providers.join(", ");
        write!(
            f,
            "project {project}, Octavia API {octavia}, providers {providers}"
        )
    }
}
