//! Whether two rows are of one version of a Service.

use super::ServiceRow;

impl ServiceRow {
    /// Whether two rows say the same of a Service, apart from what controllers write as well
    /// (annotations, the finalizer, the status and what comes with it) and where it stands. Callers
    /// compare these as far as they need them.
    pub fn is_same_version(&self, other: &Self) -> bool {
        // Every field by name, so that a new one can't be forgotten.
        let Self {
            key,
            uid,
            generation,
            resource_version: _,
            recorded: _,
            created,
            labels,
            annotations: _,
            finalized: _,
            deleting,
            wants_load_balancer,
            class,
            families,
            family_policy,
            headless,
            ports,
            selector,
            external_local,
            health_check_node_port,
            affinity,
            load_balancer_ip,
            source_ranges,
            publish_not_ready,
            allocate_node_ports,
            node_fields,
            status: _,
            faults,
            source: _,
        } = self;
        *key == other.key
            && *uid == other.uid
            && *generation == other.generation
            && *created == other.created
            && *labels == other.labels
            && *deleting == other.deleting
            && *wants_load_balancer == other.wants_load_balancer
            && *class == other.class
            && *families == other.families
            && *family_policy == other.family_policy
            && *headless == other.headless
            && *ports == other.ports
            && *selector == other.selector
            && *external_local == other.external_local
            && *health_check_node_port == other.health_check_node_port
            && *affinity == other.affinity
            && *load_balancer_ip == other.load_balancer_ip
            && *source_ranges == other.source_ranges
            && *publish_not_ready == other.publish_not_ready
            && *allocate_node_ports == other.allocate_node_ports
            && *node_fields == other.node_fields
            && *faults == other.faults
    }
}
