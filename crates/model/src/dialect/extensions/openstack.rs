//! Options that select objects that only OpenStack has: its extension of the Intent.

use crate::dialect::given::Given;
use crate::status::ServiceStatus;

extension! {
    /// Options of annotations that only OpenStack supports; `None` where there is no annotation.
    OpenStackOptions {
        /// No floating IP.
        internal: bool,
        /// The network of the floating IP. An empty text chooses none, whatever the configuration
        /// says.
        floating_network: String,
        /// The subnet of the floating IP, by id.
        floating_subnet_id: String,
        /// The subnet of the floating IP, by a pattern of names.
        floating_subnet: String,
        /// The subnet of the floating IP, by an expression of tags.
        floating_subnet_tags: String,
        /// A `[LoadBalancerClass "..."]` of the configuration.
        class: String,
        /// The floating IP outlives the Service.
        keep_floating_ip: bool,
        /// The port that has the VIP.
        port: String,
        /// The subnet of the VIP.
        subnet: String,
        /// The network of the VIP.
        network: String,
        /// The subnet of the members.
        member_subnet: String,
        /// The certificate in Barbican. An empty text chooses none, whatever the configuration
        /// says.
        tls_container: String,
        /// The flavor of the load balancer. An empty text chooses none, whatever the configuration
        /// says.
        flavor: String,
        /// The zone of the load balancer. An empty text chooses none, whatever the configuration
        /// says.
        availability_zone: String,
        /// The Octavia provider.
        provider: String,
        /// With PROXY headers, a made-up name is published.
        ingress_hostname: bool,
        /// Which load balancer to use.
        load_balancer: String,
        /// What a controller has noted of the load balancer that serves the Service: its address;
        /// or the name or the address in the status.
        published: String,
        /// Further tags of the load balancer.
        load_balancer_tags: Vec<String>,
        /// Further tags of the listeners.
        listener_tags: Vec<String>,
        /// Further tags of the pools.
        pool_tags: Vec<String>,
        /// Further tags of the floating IP.
        floating_ip_tags: Vec<String>,
        /// Further tags of the security group.
        group_tags: Vec<String>,
        /// Further certificates in Barbican.
        sni_containers: Vec<String>,
        /// The versions of TLS.
        tls_versions: Vec<String>,
        /// The ciphers of TLS.
        tls_ciphers: String,
        /// The protocols offered by ALPN.
        alpn_protocols: Vec<String>,
    }
}

impl OpenStackOptions {
    /// Adds the name that the status publishes, or the address, where no controller has noted an
    /// address.
    #[must_use]
    pub(super) fn with_status(mut self, status: &ServiceStatus) -> Self {
        let name = status.ingress.iter().find_map(|it| it.hostname.clone());
        let address = || status.ingress.iter().find_map(|it| it.ip);
        let published = name.or_else(|| address().map(|it| it.to_string()));
        let published = published.map(|value| Given {
            value,
            annotation: "status.loadBalancer".to_owned(),
        });
        self.published = self.published.or(published);
        self
    }
}
