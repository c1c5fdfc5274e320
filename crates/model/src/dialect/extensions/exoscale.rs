//! Options that only Exoscale has: its extension of the Intent.

extension! {
    /// Annotations that only Exoscale supports, as texts: the provider validates each by itself, so
    /// that one with a mistake leaves the value in use and keeps no other from being applied.
    ExoscaleOptions {
        /// The load balancer.
        load_balancer: String,
        /// The name of the load balancer.
        name: String,
        /// The description of the load balancer.
        description: String,
        /// The load balancer is never created, renamed or deleted.
        external: bool,
        /// The name of the only NLB service.
        service_name: String,
        /// The description of the only NLB service.
        service_description: String,
        /// The instance pool.
        instance_pool: String,
        /// The SKS cluster of the nodepool, by name or id.
        sks_cluster: String,
        /// The nodepool whose instance pool is used.
        sks_nodepool: String,
        /// How an instance is chosen.
        strategy: String,
        /// The kind of health check.
        healthcheck_mode: String,
        /// The port that is checked.
        healthcheck_port: String,
        /// The path of HTTP checks.
        healthcheck_uri: String,
        /// Time between checks.
        healthcheck_interval: String,
        /// The timeout of a check.
        healthcheck_timeout: String,
        /// Failed checks before an instance is down.
        healthcheck_retries: String,
        /// The server's name in HTTPS checks.
        healthcheck_tls_sni: String,
    }
}
