//! What is on record: the claims that Services' statuses tell of. Pure.

use std::ops::Deref;

use landfall_model::intent::Claim;
use landfall_model::listener::ListenerKey;
use landfall_model::provider::Provider;

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
        let row = &*row;
        let namespace = world.namespace(row.key.namespace());
        let Belongs::Ours(instance) = classes.judge(row, namespace.map(AsRef::as_ref)) else {
            continue;
        };
        let (Some(provider), Some(claims)) = (providers.get(instance), claims.get_mut(instance))
        else {
            continue;
        };
        let addresses: Vec<_> = row.status.addresses().collect();
        if addresses.is_empty() {
            continue;
        }
        // A wish that is invalid today does not take the address away.
        let intent = resolve(row, world, provider.capabilities()).ok();
        let wish = intent
            .and_then(|intent| intent.load_balancer)
            .map(|wish| wish.address);
        let (requested, sharing_key, backend_key) = wish
            .map(|wish| (wish.requested, wish.sharing_key, wish.backend_key))
            .unwrap_or_default();
        let ports = row.ports.iter();
        claims.push(Claim {
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
        });
    }
    claims
}
