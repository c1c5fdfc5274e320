//! The command line of cloud-provider-openstack's controller manager, which `landfall controller`
//! accepts: a manifest keeps its arguments when image and command change.
//!
//! Each of its flags that Landfall does not have itself is in one of two tables. [`TAKEN`]:
//! Landfall has the same by another name, or refuses what it can't do. [`UNUSED`]: the flag has no
//! meaning here, and a log line says so. They are on no page of help: docs/migrating-openstack.md
//! lists them.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use jiff::SignedDuration;

use super::remarks::Remark;
use super::{ControllerArgs, LogFormat};

mod controllers;

/// A flag with a meaning.
struct Taken {
    name: &'static str,
    take: fn(&mut ControllerArgs, &str) -> Result<(), String>,
}

/// Flags without a meaning.
struct Unused {
    why: &'static str,
    /// Those that take a value.
    values: &'static [&'static str],
    /// Those that may have a value after `=`.
    switches: &'static [&'static str],
}

/// The reference's program, which its manifests name as the first argument.
const PROGRAM: &str = "openstack-cloud-controller-manager";
/// The command that takes its place.
pub const COMMAND: &str = "controller";
/// From this verbosity on, the reference logs what Landfall has as details.
const VERBOSE: i32 = 4;

const TAKEN: [Taken; 9] = [
    Taken {
        name: "cloud-provider",
        take: cloud_provider,
    },
    Taken {
        name: "controllers",
        take: controllers::take,
    },
    Taken {
        name: "leader-elect-lease-duration",
        take: |args, text| {
            args.election.lease.lease_duration = time(text)?;
            Ok(())
        },
    },
    Taken {
        name: "leader-elect-renew-deadline",
        take: |args, text| {
            args.election.lease.renew_deadline = Some(time(text)?);
            Ok(())
        },
    },
    Taken {
        name: "leader-elect-retry-period",
        take: |args, text| {
            args.election.lease.retry_period = Some(time(text)?);
            Ok(())
        },
    },
    Taken {
        name: "leader-elect-resource-namespace",
        take: |args, text| {
            args.election.namespace = Some(text.to_owned());
            Ok(())
        },
    },
    Taken {
        name: "logging-format",
        take: |args, text| {
            args.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("write text or json".to_owned()),
            };
            Ok(())
        },
    },
    Taken {
        name: "master",
        take: |_, text| match text {
            "" => Ok(()),
            _ => Err("name the API server in a kubeconfig, with --kubeconfig".to_owned()),
        },
    },
    Taken {
        name: "v",
        take: |args, text| {
            let level: i32 = text.parse().map_err(|_| "not a number".to_owned())?;
            args.reference.verbose = level >= VERBOSE;
            Ok(())
        },
    },
];

const UNUSED: [Unused; 9] = [
    Unused {
        why: "health and metrics are served over HTTP at --admin, which probes have to ask",
        values: &[
            "address",
            "authentication-kubeconfig",
            "authentication-token-webhook-cache-ttl",
            "authorization-always-allow-paths",
            "authorization-kubeconfig",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
            "bind-address",
            "cert-dir",
            "client-ca-file",
            "http2-max-streams-per-connection",
            "port",
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-username-headers",
            "secure-port",
            "tls-cert-file",
            "tls-cipher-suites",
            "tls-curve-preferences",
            "tls-min-version",
            "tls-private-key-file",
            "tls-sni-cert-key",
        ],
        switches: &[
            "authentication-skip-lookup",
            "authentication-tolerate-lookup-failure",
            "disable-http2-serving",
            "permit-address-sharing",
            "permit-port-sharing",
        ],
    },
    Unused {
        why: "it is for controllers of nodes and routes, which Landfall does not have",
        values: &[
            "cidr-allocator-type",
            "cluster-cidr",
            "concurrent-node-status-updates",
            "concurrent-node-syncs",
            "external-cloud-volume-plugin",
            "node-monitor-period",
            "node-status-update-frequency",
            "node-sync-period",
            "route-reconciliation-period",
        ],
        switches: &["allocate-node-cidrs", "configure-cloud-routes"],
    },
    Unused {
        why: "no Service waits for another one",
        values: &["concurrent-service-syncs"],
        switches: &[],
    },
    Unused {
        why: "it uses the service account of its pod, or --kubeconfig",
        values: &[],
        switches: &["use-service-account-credentials"],
    },
    Unused {
        why: "the API server is read by watches, and written to at changes only",
        values: &[
            "controller-start-interval",
            "kube-api-burst",
            "kube-api-content-type",
            "kube-api-qps",
            "min-resync-period",
        ],
        switches: &[],
    },
    Unused {
        why: "its Lease is that of --lease-name: with the Lease of the reference, which may go on \
              with other controllers, one would wait for the other",
        values: &["leader-elect-resource-lock", "leader-elect-resource-name"],
        switches: &[],
    },
    Unused {
        why: "the log goes to standard error, as --log-format and LANDFALL_LOG say",
        values: &[
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "log-flush-frequency",
            "log-json-info-buffer-size",
            "log-text-info-buffer-size",
            "stderrthreshold",
            "vmodule",
        ],
        switches: &[
            "add-dir-header",
            "alsologtostderr",
            "log-json-split-stream",
            "log-text-split-stream",
            "logtostderr",
            "one-output",
            "skip-headers",
            "skip-log-headers",
        ],
    },
    Unused {
        why: "Landfall has no such webhook",
        values: &[
            "webhook-bind-address",
            "webhook-cert-dir",
            "webhook-secure-port",
            "webhook-tls-cert-file",
            "webhook-tls-cipher-suites",
            "webhook-tls-curve-preferences",
            "webhook-tls-min-version",
            "webhook-tls-private-key-file",
            "webhook-tls-sni-cert-key",
            "webhooks",
        ],
        switches: &["webhook-disable-http2-serving"],
    },
    Unused {
        why: "it is about the reference's own program",
        values: &[
            "allow-metric-labels",
            "allow-metric-labels-manifest",
            "disabled-metrics",
            "emulated-version",
            "feature-gates",
            "min-compatibility-version",
            "show-hidden-metrics-for-version",
        ],
        switches: &["allow-untagged-cloud", "contention-profiling", "profiling"],
    },
];

/// Puts the command in the place of the reference's program, which its manifests name first.
pub(super) fn renamed(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_program = |argument: Option<&OsString>| {
        argument.is_some_and(|it| Path::new(it).file_name() == Some(PROGRAM.as_ref()))
    };
    let is_command = arguments.get(1).is_some_and(|it| it == COMMAND);
    if is_command && is_program(arguments.get(2)) {
        arguments.remove(2);
    } else if is_program(arguments.get(1))
        && let Some(program) = arguments.get_mut(1)
    {
        *program = COMMAND.into();
    }
    arguments
}

/// Adds the reference's flags to the command that takes its place.
pub(super) fn accepting(program: Command) -> Command {
    program.mut_subcommand(COMMAND, |mut command| {
        let flag = |name: &'static str| {
            let flag = Arg::new(name).long(name).hide(true);
            flag.action(ArgAction::Append)
                .help("A flag of the reference")
        };
        for taken in &TAKEN {
            let flag = flag(taken.name).num_args(1).allow_hyphen_values(true);
            command = command.arg(if taken.name == "v" {
                flag.short('v')
            } else {
                flag
            });
        }
        for unused in &UNUSED {
            for name in unused.values {
                command = command.arg(flag(name).num_args(1).allow_hyphen_values(true));
            }
            for name in unused.switches {
                let flag = flag(name).num_args(0..=1).require_equals(true);
                command = command.arg(flag.default_missing_value("true"));
            }
        }
        command
    })
}

/// Applies what was given of the reference's flags.
///
/// # Errors
/// Which one asks for what Landfall does not do.
pub(super) fn apply(args: &mut ControllerArgs, given: &ArgMatches) -> Result<(), String> {
    // Of several, the last one counts, as for the reference.
    let value = |name: &str| given.get_many::<String>(name).and_then(Iterator::last);
    for taken in &TAKEN {
        if let Some(value) = value(taken.name) {
            let dashes = if taken.name.len() == 1 { "-" } else { "--" };
            (taken.take)(args, value)
                .map_err(|why| format!("{dashes}{}={value}: {why}", taken.name))?;
        }
    }
    if value("cloud-provider").is_some() && value("controllers").is_none() {
        args.reference.remarks.push(controllers::all());
    }
    let unused = UNUSED.iter().flat_map(|unused| {
        let names = unused.values.iter().chain(unused.switches);
        names.map(move |name| (*name, unused.why))
    });
    let unused = unused.filter(|(name, _)| value(name).is_some());
    args.reference
        .remarks
        .extend(unused.map(|(flag, why)| Remark {
            flag,
            why,
            matters: false,
        }));
    Ok(())
}

/// Another cloud, or none, would be served by what the default configuration has.
fn cloud_provider(args: &mut ControllerArgs, text: &str) -> Result<(), String> {
    if text != "openstack" {
        return Err("Landfall takes the place of openstack only".to_owned());
    }
    if args.instances.is_default() {
        return Err("name the file of the cloud with --cloud-config".to_owned());
    }
    Ok(())
}

/// Reads a duration as Go writes it: `15s`, `1m30s`.
fn time(text: &str) -> Result<Duration, String> {
    let time: Result<SignedDuration, _> = text.parse();
    let time = time.ok().and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| "not a duration such as 15s".to_owned())
}

#[cfg(test)]
mod tests;
