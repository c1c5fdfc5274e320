//! The health check of an NLB service.

use landfall_model::listener::{Check, Monitor};
use landfall_model::{Code, Listener, Reason};

use super::{Build, Target};
use crate::objects::{Healthcheck, HealthcheckMode, LoadBalancerService, Protocol};
use crate::options;

/// A health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedHealthcheck {
    /// Its kind.
    pub mode: HealthcheckMode,
    /// The port.
    pub port: u16,
    /// The path, for HTTP.
    pub uri: Option<String>,
    /// Seconds between two checks.
    pub interval: u32,
    /// Seconds until a check fails.
    pub timeout: u32,
    /// Failed checks before an instance is down.
    pub retries: u32,
    /// The server's name, for HTTPS.
    pub tls_sni: Option<String>,
}

/// Where kube-proxy says whether a node has an endpoint.
const HEALTHZ: &str = "/healthz";

impl Build<'_> {
    /// Returns the health check of a port.
    ///
    /// # Errors
    /// All reasons why it can't be had.
    pub(super) fn healthcheck(
        &self,
        listener: &Listener,
        protocol: &Protocol,
        target_port: u16,
        target: &mut Target,
    ) -> Result<WantedHealthcheck, Vec<Reason>> {
        let options = self.options();
        let local = self.spec.health_check_port;
        let portable = monitor(listener, local.is_some());
        let mut refusals = Vec::new();
        let asked = refused(options::mode(options), &mut refusals);
        let by_monitor = portable.map(|it| match it.check {
            Check::Http { .. } if it.tls => HealthcheckMode::Https,
            Check::Http { .. } => HealthcheckMode::Http,
            Check::Tcp | Check::UdpConnect | Check::Grpc { .. } => HealthcheckMode::Tcp,
        });
        let by_http = local.is_some() && self.settings.local_http_checks;
        let by_policy = if by_http {
            HealthcheckMode::Http
        } else {
            HealthcheckMode::Tcp
        };
        let mode = by_monitor.or(asked).unwrap_or(by_policy);
        let port = portable.and_then(|it| it.port);
        let given = refused(options::port(options), &mut refusals);
        let given = port.map(std::num::NonZeroU16::get).or(given);
        let policy = local.map(std::num::NonZeroU16::get);
        let uri = options::some_text(options.healthcheck_uri.as_ref());
        let uri = portable.and_then(path).or(refused(uri, &mut refusals));
        let tls_sni = options::some_text(options.healthcheck_tls_sni.as_ref());
        let tls_sni = refused(tls_sni, &mut refusals);
        let number = |monitored: fn(&Monitor) -> u64, given: Option<u32>, default: u32| {
            let monitored = portable.map(|it| u32::try_from(monitored(it)).unwrap_or(u32::MAX));
            monitored.or(given).unwrap_or(default)
        };
        let interval = refused(options::interval(options), &mut refusals);
        let timeout = refused(options::timeout(options), &mut refusals);
        let retries = refused(options::retries(options), &mut refusals);
        let wanted = WantedHealthcheck {
            uri: uri.or((by_http && is_http(&mode)).then(|| HEALTHZ.to_owned())),
            mode,
            port: given.or(policy).unwrap_or(target_port),
            interval: number(|it| it.delay.as_secs(), interval, 10),
            timeout: number(|it| it.timeout.as_secs(), timeout, 5),
            retries: number(|it| it.max_retries_down.into(), retries, 1),
            tls_sni: portable.and_then(|it| it.host.clone()).or(tls_sni),
        };
        if refusals.is_empty() {
            refusals.extend(wanted.refusals());
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if *protocol == Protocol::Udp && wanted.port == target_port && !self.has_tcp(target_port) {
            target.remarks.push(udp_is_not_checked(target_port));
        }
        Ok(wanted)
    }

    /// Returns whether a TCP port of the Service has this `NodePort`.
    fn has_tcp(&self, target_port: u16) -> bool {
        let mut listeners = self.spec.listeners.iter();
        listeners.any(|it| {
            let member = it.pool.members.first();
            it.key.protocol == landfall_model::Protocol::Tcp
                && member.is_some_and(|it| it.address.port() == target_port)
        })
    }
}

/// Returns the monitor that was asked for. One that is there for the policy alone says nothing.
fn monitor(listener: &Listener, local: bool) -> Option<&Monitor> {
    let monitor = listener.pool.monitor.as_ref();
    monitor.filter(|it| !local || matches!(it.check, Check::Http { .. }))
}

fn path(monitor: &Monitor) -> Option<String> {
    match &monitor.check {
        Check::Http { path, .. } => Some(path.clone()),
        Check::Tcp | Check::UdpConnect | Check::Grpc { .. } => None,
    }
}

/// Returns what was given, and notes why it is refused.
fn refused<T>(parsed: options::Parsed<T>, refusals: &mut Vec<Reason>) -> Option<T> {
    parsed.unwrap_or_else(|reason| {
        refusals.push(*reason);
        None
    })
}

fn is_http(mode: &HealthcheckMode) -> bool {
    matches!(mode, HealthcheckMode::Http | HealthcheckMode::Https)
}

fn udp_is_not_checked(port: u16) -> Reason {
    let message = format!(
        "health checks connect by TCP to the UDP NodePort {port}, where they fail unless a program \
         listens there"
    );
    let remedy = "name a TCP NodePort of the same pods in \
                  service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port";
    Reason::warning(Code::NoHealthyMembers, message).remedy(remedy)
}

// === impl WantedHealthcheck ===

impl WantedHealthcheck {
    /// Returns the one that is in use; one that checks the `NodePort` goes on to.
    pub(super) fn kept(service: &LoadBalancerService, target_port: u16) -> Self {
        let have = &service.healthcheck;
        let port = have.port.filter(|port| *port != service.target_port);
        Self {
            mode: have.mode.clone().unwrap_or(HealthcheckMode::Tcp),
            port: port.unwrap_or(target_port),
            uri: have.uri.clone(),
            interval: have.interval.unwrap_or(10),
            timeout: have.timeout.unwrap_or(2),
            retries: have.retries.unwrap_or(1),
            tls_sni: have.tls_sni.clone(),
        }
    }

    /// Returns it as it is sent: complete.
    pub fn body(&self) -> Healthcheck {
        Healthcheck {
            mode: Some(self.mode.clone()),
            port: Some(self.port),
            uri: self.uri.clone(),
            interval: Some(self.interval),
            timeout: Some(self.timeout),
            retries: Some(self.retries),
            tls_sni: self.tls_sni.clone(),
        }
    }

    /// Returns whether a health check does the same. What its mode does not use is left from
    /// another one.
    pub fn is(&self, have: &Healthcheck) -> bool {
        let https = self.mode == HealthcheckMode::Https;
        have.mode.as_ref().unwrap_or(&HealthcheckMode::Tcp) == &self.mode
            && have.port == Some(self.port)
            && have.interval.unwrap_or(10) == self.interval
            && have.timeout.unwrap_or(2) == self.timeout
            && have.retries.unwrap_or(1) == self.retries
            && (!is_http(&self.mode) || have.uri == self.uri)
            && (!https || self.tls_sni.is_none() || have.tls_sni == self.tls_sni)
    }

    /// Returns what the cloud would refuse of the whole.
    fn refusals(&self) -> Vec<Reason> {
        let mut refusals = Vec::new();
        let mut refuse = |code, message: String, remedy: &str| {
            refusals.push(Reason::error(code, message).remedy(remedy));
        };
        if is_http(&self.mode) && self.uri.is_none() {
            let message = format!("a health check by {} needs a path", self.mode);
            let remedy = "set service.beta.kubernetes.io/\
                          exoscale-loadbalancer-service-healthcheck-uri";
            refuse(Code::InvalidAnnotation, message, remedy);
        }
        for (what, value, range) in [
            ("interval", self.interval, 5..=300),
            ("timeout", self.timeout, 2..=60),
            ("number of retries", self.retries, 1..=20),
        ] {
            if !range.contains(&value) {
                let (min, max) = range.into_inner();
                let message = format!("the {what} of health checks is {value}");
                let remedy = format!("Exoscale takes {min} to {max}");
                refuse(Code::InvalidAnnotation, message, &remedy);
            }
        }
        if self.interval < self.timeout {
            let (interval, timeout) = (self.interval, self.timeout);
            let message = format!(
                "health checks have an interval of {interval} s and a timeout of {timeout} s"
            );
            let remedy = "make the interval at least as long as the timeout";
            refuse(Code::ConflictingOptions, message, remedy);
        }
        refusals
    }
}
