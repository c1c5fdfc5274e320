//! What is on record: the claims that Services' statuses tell of. Pure.

use std::collections::BTreeMap;
use std::ops::Deref;

use landfall_model::ServiceKey;
use landfall_model::intent::Claim;
use landfall_model::listener::ListenerKey;
use landfall_model::provider::{Capabilities, Provider};
use landfall_model::rows::ServiceRow;

use crate::resolve::resolve;
use crate::select::{Belongs, Classes};
use crate::world::World;

/// The claims of each provider instance, in the order of the instances.
pub fn claims<P: Provider>(
    world: &World,
    classes: &Classes,
    providers: &[impl Deref<Target = P>],
) -> Vec<Vec<Claim>> {
    let mut claims = vec![Vec::new(); providers.len()];
    for row in world.services() {
        let namespace = world.namespace(row.key.namespace());
        let Belongs::Ours(instance) = classes.judge(&row, namespace.map(AsRef::as_ref)) else {
            continue;
        };
        if let (Some(provider), Some(claims)) = (providers.get(instance), claims.get_mut(instance))
        {
            claims.extend(claim(&row, world, provider.capabilities()));
        }
    }
    claims
}

/// The claims of Services that were ours and that no instance serves any more.
pub(crate) fn lost(world: &World, classes: &Classes) -> BTreeMap<ServiceKey, Claim> {
    let claims = world.services().filter_map(|row| {
        let claim = lost_claim(&row, world, classes)?;
        Some((claim.service.clone(), claim))
    });
    claims.collect()
}

/// What such a Service holds; `None` for any other one.
pub(crate) fn lost_claim(row: &ServiceRow, world: &World, classes: &Classes) -> Option<Claim> {
    let namespace = world.namespace(row.key.namespace());
    let belongs = classes.judge(row, namespace.map(AsRef::as_ref));
    let lost = classes.has_lost(row, belongs);
    lost.then(|| claim(row, world, &Capabilities::default()))?
}

/// What a Service holds by its status; `None`: nothing.
fn claim(row: &ServiceRow, world: &World, capabilities: &Capabilities) -> Option<Claim> {
    let addresses: Vec<_> = row.status.addresses().collect();
    if addresses.is_empty() {
        return None;
    }
    // A wish that is invalid today does not take the address away.
    let intent = resolve(row, world, capabilities).ok();
    let wish = intent
        .and_then(|intent| intent.load_balancer)
        .map(|wish| wish.address);
    let (requested, sharing_key, backend_key) = wish
        .map(|wish| (wish.requested, wish.sharing_key, wish.backend_key))
        .unwrap_or_default();
    let ports = row.ports.iter();
    Some(Claim {
        service: row.key.clone(),
        uid: row.uid.clone(),
        addresses,
        requested,
        sharing_key,
        backend_key,
        ports: ports
            .map(|port| ListenerKey {
                protocol: port.protocol,
                port: port.port,
            })
            .collect(),
    })
}
