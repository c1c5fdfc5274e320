//! Certificates of Secrets in Barbican: made before a listener names them, deleted once none does.
//! Pure.

use landfall_model::plan::Plan;

use crate::objects::id_in;
use crate::observed::Observed;
use crate::step::Step;

/// Appends those that listeners are about to name.
pub(super) fn create(have: &Observed, plan: &mut Plan<Step>) {
    for (name, certificate) in &have.certificates.missing {
        let step = Step::CreateCertificate {
            name: name.clone(),
            source: certificate.source.clone(),
            certificate: certificate.clone(),
        };
        plan.push(step, "Octavia reads certificates from Barbican");
    }
}

/// Appends the deletion of those of the Service that no listener names.
pub(super) fn delete_unneeded(have: &Observed, plan: &mut Plan<Step>) {
    for container in &have.certificates.unneeded {
        let secrets = container.secret_refs.iter();
        let step = Step::DeleteCertificate {
            container: id_in(&container.container_ref),
            name: container.name.clone(),
            secrets: secrets.map(|it| id_in(&it.secret_ref)).collect(),
        };
        plan.push(step, "no listener needs it");
    }
}
