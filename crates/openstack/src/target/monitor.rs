//! The monitor of a pool, in numbers and words that Octavia takes.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_model::dialect::show_duration;
use landfall_model::listener::{Check, StatusCodes};
use landfall_model::{Code, Listener, Protocol, Reason};

use super::{HEALTHZ, ListenerBuilder, WantedMonitor};
use crate::objects::MonitorType;

/// Octavia's own default for the least number of seconds.
const SHORTEST_UDP_DELAY: u64 = 3;
/// As long as Octavia's column is.
const LONGEST_CODES: usize = 64;

impl ListenerBuilder<'_> {
    pub(super) fn monitor(&mut self, index: usize, listener: &Listener) -> Option<WantedMonitor> {
        let monitor = listener.pool.monitor.as_ref()?;
        if self.lacks_monitor_of_pods() {
            return None;
        }
        let transport = listener.key.protocol;
        let udp = transport == Protocol::Udp;
        let get = || Some(("GET".to_owned(), HEALTHZ.to_owned(), "200".to_owned()));
        let possible = self.features.http_monitor(udp);
        if matches!(monitor.check, Check::Http { .. }) && !possible {
            let why = if self.features.ovn {
                "the provider ovn only checks whether a port is open, and sends no requests"
                    .to_owned()
            } else {
                self.lacks("HTTP monitors of UDP ports", "2.16")
            };
            self.lacking(why);
        }
        if monitor.port.is_some() && self.features.ovn {
            self.lacking("the provider ovn checks a member's own port only".to_owned());
        }
        let (kind, http) = match &monitor.check {
            Check::Http {
                method,
                path,
                codes,
            } if possible => {
                let codes = self.codes(codes);
                let method = serde_json::to_value(method).ok();
                let method = method
                    .as_ref()
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or("GET");
                // Octavia verifies no certificate here.
                let kind = if monitor.tls {
                    MonitorType::Https
                } else {
                    MonitorType::Http
                };
                (kind, Some((method.to_owned(), path.clone(), codes)))
            }
            _ if self.spec.health_check_port.is_some() && possible => (MonitorType::Http, get()),
            _ if self.spec.health_check_port.is_some() && udp => {
                self.unchecked();
                (MonitorType::UdpConnect, None)
            }
            _ => match transport {
                Protocol::Tcp => (MonitorType::Tcp, None),
                Protocol::Udp => (MonitorType::UdpConnect, None),
                Protocol::Sctp => (MonitorType::Sctp, None),
            },
        };
        if kind == MonitorType::Sctp && self.features.ovn {
            self.remark(Reason::warning(
                Code::OptionNotSupported,
                "the provider ovn has no monitor for SCTP, so members are not checked",
            ));
            return None;
        }
        Some(WantedMonitor {
            name: self.names.child("monitor", index),
            delay: self.delay(monitor.delay, &kind),
            kind,
            timeout: self.seconds("timeout", monitor.timeout),
            max_retries: monitor.max_retries,
            max_retries_down: monitor.max_retries_down,
            http,
        })
    }

    /// That nodes without an endpoint are not found out: a datagram to them is dropped like one
    /// that needs no answer.
    fn unchecked(&mut self) {
        let why = if self.features.ovn {
            "the provider ovn does not check health ports".to_owned()
        } else {
            self.lacks("HTTP monitors of UDP ports", "2.16")
        };
        self.remark(
            Reason::warning(
                Code::OptionNotSupported,
                format!(
                    "{why}: a UDP port goes on being sent to nodes that have no endpoint of the \
                    Service, which drop the datagrams"
                ),
            )
            .at("spec.externalTrafficPolicy")
            .remedy("set externalTrafficPolicy to Cluster, or run an endpoint on every node"),
        );
    }

    /// Octavia has an end for how often datagrams are sent, and none of its clients knows another.
    fn delay(&mut self, delay: Duration, kind: &MonitorType) -> u64 {
        let delay = self.seconds("delay", delay).max(1);
        if *kind != MonitorType::UdpConnect || delay >= SHORTEST_UDP_DELAY {
            return delay;
        }
        self.remark(
            Reason::warning(
                Code::OptionNotSupported,
                format!(
                    "the minimum delay for UDP ports in Octavia is {SHORTEST_UDP_DELAY}s, which is \
                    used instead of {delay}s"
                ),
            )
            .remedy(format!("write a delay of at least {SHORTEST_UDP_DELAY}s")),
        );
        SHORTEST_UDP_DELAY
    }

    /// Octavia counts whole seconds. A part of one is a whole one.
    fn seconds(&mut self, what: &str, time: Duration) -> u64 {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        if time.subsec_nanos() > 0 {
            self.remark(
                Reason::warning(
                    Code::OptionNotSupported,
                    format!(
                        "Octavia counts whole seconds, so the {what} of a monitor is {seconds}s \
                        instead of {}",
                        show_duration(time)
                    ),
                )
                .remedy("write whole seconds"),
            );
        }
        seconds
    }

    /// Octavia takes one range, or a list of single codes that is not too long.
    fn codes(&mut self, codes: &StatusCodes) -> String {
        let ranges = codes.ranges();
        let single = |(first, last): &(u16, u16)| first == last;
        let text = if ranges.len() == 1 || ranges.iter().all(single) {
            codes.to_string()
        } else {
            let each = ranges.iter().flat_map(|(first, last)| *first..=*last);
            let each: BTreeSet<u16> = each.collect();
            let each: Vec<String> = each.iter().map(u16::to_string).collect();
            each.join(",")
        };
        if text.len() > LONGEST_CODES {
            self.remark(
                Reason::error(
                    Code::OptionNotSupported,
                    format!(
                        "Octavia accepts one range of status codes or a short list, and \
                            {codes} is too long"
                    ),
                )
                .remedy("write one range such as 200-299, or at most 16 single codes"),
            );
        }
        text
    }
}
