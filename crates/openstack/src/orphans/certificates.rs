//! Certificates of Secrets in Barbican whose Services are gone.

use std::collections::BTreeSet;

use super::{Orphan, OrphanKind, Owner, Project};
use crate::certificates::used;
use crate::client::{ApiError, Cloud, ErrorKind};
use crate::names::CERTIFICATE_PREFIX;
use crate::objects::{Container, Id, Ref, id_in};
use crate::settings::Settings;

/// Reads all containers of the project; none where there is no Barbican, or none for us.
pub(super) async fn read(cloud: &Cloud) -> Result<Vec<Container>, ApiError> {
    if !cloud.has_key_manager().await? {
        return Ok(Vec::new());
    }
    match cloud.containers().await {
        Err(error) if matches!(error.kind, ErrorKind::Forbidden | ErrorKind::NotFound) => {
            Ok(Vec::new())
        }
        containers => containers,
    }
}

/// Finds the certificates of Services of this cluster that are gone, which no listener or pool
/// names that stays. Where the cluster has no id, none is known to be ours.
pub(super) fn unowned(
    project: &Project,
    settings: &Settings,
    owners: &[Owner],
    going: &BTreeSet<Id>,
) -> Vec<Orphan> {
    let Some(cluster) = &settings.cluster_id else {
        return Vec::new();
    };
    let stays = |of: &[Ref]| !of.iter().any(|it| going.contains(&it.id));
    let listeners = project.listeners.iter();
    let pools = project.pools.iter();
    let used = used(
        listeners.filter(|it| stays(&it.loadbalancers)),
        pools.filter(|it| stays(&it.loadbalancers)),
    );
    let prefix = format!("{CERTIFICATE_PREFIX}{cluster}_");
    let orphans = project.containers.iter().filter_map(|container| {
        let (service, _) = container.name.strip_prefix(&prefix)?.rsplit_once('_')?;
        // That of a second family is the Service's, too.
        let of_owner = |owner: &Owner| {
            let rest = service.strip_prefix(owner.uid.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let id = id_in(&container.container_ref);
        let unowned = !owners.iter().any(of_owner) && !used.contains(&id);
        unowned.then(|| Orphan {
            kind: OrphanKind::Certificate,
            id,
            name: container.name.clone(),
            whose: format!("of the Service with the UID {service}"),
            unproven: false,
        })
    });
    orphans.collect()
}

/// Deletes a container with the secrets in it.
pub(super) async fn remove(cloud: &Cloud, id: &Id) -> Result<(), ApiError> {
    let all = cloud.containers().await?;
    let is_it = |container: &&Container| id_in(&container.container_ref) == *id;
    for secret in all.iter().filter(is_it).flat_map(|it| &it.secret_refs) {
        cloud.delete_secret(&id_in(&secret.secret_ref)).await?;
    }
    cloud.delete_container(id).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{settings, web};
    use super::*;
    use crate::objects::Listener;

    fn container(name: &str) -> Container {
        Container {
            container_ref: format!("http://barbican/v1/containers/{name}"),
            name: name.to_owned(),
            ..Container::default()
        }
    }

    #[test]
    fn certificates_of_services_that_are_gone_are_orphans_unless_a_listener_names_them() {
        let names = [
            "landfall_tls_ks_u1_a",
            "landfall_tls_ks_u1.ipv6_a",
            "landfall_tls_ks_u2_a",
            "landfall_tls_ks_u3_a",
            "landfall_tls_ks_u4_a",
            "landfall_tls_other_u2_a",
            "landfall_tls_-_u2_a",
            "certificate",
        ];
        let listener = |balancer: &str, name: &str| -> Listener {
            let reference = container(name).container_ref;
            let row = json!({"id": name, "loadbalancers": [{"id": balancer}],
                "sni_container_refs": [reference]});
            serde_json::from_value(row).unwrap()
        };
        let project = Project {
            containers: names.map(container).to_vec(),
            listeners: vec![listener("stays", names[3]), listener("goes", names[4])],
            ..Project::default()
        };
        let going = BTreeSet::from([Id::new("goes")]);
        let found = |settings: &Settings| -> Vec<String> {
            let found = unowned(&project, settings, &[web()], &going);
            found.into_iter().map(|it| it.name).collect()
        };
        assert_eq!(found(&settings()), [names[2], names[4]]);
        let unknown = Settings {
            cluster_id: None,
            ..settings()
        };
        assert_eq!(found(&unknown), Vec::<String>::new());
    }
}
