//! NLBs that this cluster's controllers made and no Service owns any more.
//!
//! Only what the labels name as this cluster's counts: a name alone does not distinguish clusters.
//! What holds an NLB service of anything else than the Service for which it was made is no orphan.

use std::collections::BTreeSet;

use landfall_model::Uid;
use tokio::time::Instant;

use crate::client::{ApiError, Begun, Cloud, ErrorKind, Progress};
use crate::objects::{Id, LoadBalancer};
use crate::ownership::{CLUSTER, NAME, NAMESPACE, UID};

/// What may own an NLB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The UIDs of Services of type `LoadBalancer`, and of those that are being cleared away.
    pub uids: BTreeSet<Uid>,
    /// The NLBs that Services name.
    pub named: BTreeSet<String>,
    /// Namespaces and names of Services whose UIDs are not known.
    pub services: BTreeSet<(String, String)>,
}

/// An NLB that no Service owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Whose it was: a clause.
    pub whose: String,
}

/// Finds orphans, and counts what was read. Reads only.
///
/// # Errors
/// The cloud can't be asked.
pub async fn find(
    cloud: &Cloud,
    cluster: &str,
    owners: &Owners,
) -> Result<(Vec<Orphan>, usize), ApiError> {
    let all = cloud.load_balancers().await?;
    let orphans = all.iter().filter_map(|it| orphan(it, cluster, owners));
    Ok((orphans.collect(), all.len()))
}

/// Deletes an orphan after reading it once more; returns whether it still was one. One that is gone
/// already is a success.
///
/// # Errors
/// The cloud refuses it.
pub async fn delete(
    cloud: &Cloud,
    cluster: &str,
    owners: &Owners,
    id: &Id,
) -> Result<bool, ApiError> {
    let Some(found) = cloud.load_balancer(id).await? else {
        return Ok(true);
    };
    if orphan(&found, cluster, owners).is_none() {
        return Ok(false);
    }
    for service in &found.services {
        end(cloud, cloud.delete_service(id, &service.id).await?).await?;
    }
    // Only what is empty: another service may have been added meanwhile.
    match cloud.load_balancer(id).await? {
        Some(found) if !found.services.is_empty() => return Ok(false),
        Some(_) => end(cloud, cloud.delete_load_balancer(id).await?).await?,
        None => {}
    }
    Ok(true)
}

/// Waits for the end of a change.
async fn end(cloud: &Cloud, begun: Option<Begun>) -> Result<(), ApiError> {
    let Some(Begun::Pending(mut operation)) = begun else {
        return Ok(());
    };
    loop {
        match cloud.poll(&mut operation).await {
            Ok(Progress::Done(_)) => return Ok(()),
            Ok(Progress::Pending(_)) => {
                tokio::time::sleep(operation.due_in(Instant::now())).await;
            }
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns an NLB as an orphan, if it is one.
fn orphan(load_balancer: &LoadBalancer, cluster: &str, owners: &Owners) -> Option<Orphan> {
    let label = |key: &str| load_balancer.labels.get(key).map(String::as_str);
    let uid = label(UID).filter(|_| label(CLUSTER) == Some(cluster))?;
    let (namespace, name) = (label(NAMESPACE)?, label(NAME)?);
    let prefix = format!("{uid}-");
    let only_its = load_balancer
        .services
        .iter()
        .all(|it| it.name.starts_with(&prefix));
    let service = (namespace.to_owned(), name.to_owned());
    let is_owned = owners.uids.contains(&Uid::new(uid))
        || owners.named.contains(load_balancer.id.as_str())
        || owners.services.contains(&service);
    (only_its && !is_owned).then(|| Orphan {
        id: load_balancer.id.clone(),
        name: load_balancer.name.clone(),
        whose: format!("made for Service {namespace}/{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::LoadBalancerService;

    fn made(cluster: &str, uid: &str, services: &[&str]) -> LoadBalancer {
        let labels = [
            (CLUSTER, cluster),
            (UID, uid),
            (NAMESPACE, "default"),
            (NAME, "web"),
        ];
        let service = |name: &&str| LoadBalancerService {
            name: (*name).to_owned(),
            ..LoadBalancerService::default()
        };
        LoadBalancer {
            id: Id::from("lb"),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            services: services.iter().map(service).collect(),
            ..LoadBalancer::default()
        }
    }

    #[test]
    fn only_what_is_this_clusters_and_no_services_is_an_orphan() {
        let none = Owners::default();
        let is = |nlb: &LoadBalancer, owners: &Owners| orphan(nlb, "c1", owners).is_some();
        assert!(is(&made("c1", "u", &[]), &none));
        assert!(is(&made("c1", "u", &["u-80", "u-53-udp"]), &none));
        assert!(!is(&made("c2", "u", &["u-80"]), &none));
        assert!(!is(&made("c1", "u", &["u-80", "ssh"]), &none));
        assert!(!is(&LoadBalancer::default(), &none));
        for owners in [
            Owners {
                uids: [Uid::new("u")].into(),
                ..Owners::default()
            },
            Owners {
                named: ["lb".to_owned()].into(),
                ..Owners::default()
            },
            Owners {
                services: [("default".to_owned(), "web".to_owned())].into(),
                ..Owners::default()
            },
        ] {
            assert!(!is(&made("c1", "u", &[]), &owners));
        }
    }
}
